package relay

import (
	"testing"

	"github.com/towpath/towpath/deploy/lab"
	"github.com/towpath/towpath/deploy/lab/labtest"
)

func TestCheckMissesTheExchangeOfATableThatIsStillEmpty(t *testing.T) {
	for _, kind := range []lab.Kind{lab.Rabbit310, lab.Rabbit43} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, labtest.MySQL(t, servers["mysql with GTID"]), labtest.Rabbit(t, lab.RabbitOptions{Kind: kind}))
			s.exec("DELETE FROM bill")
			s.sound()
			s.wants(OK, `bill -> exchange "bills": it is there`)
			if err := s.rabbit.SetPermissions(t.Context(), s.vhost, `^towpath\..*`, `^towpath\..*`, `^towpath\..*`); err != nil {
				t.Fatal(err)
			}
			s.wants(Warn, `bill -> exchange "bills": publish to exchange`)
			if err := s.rabbit.SetPermissions(t.Context(), s.vhost, ".*", ".*", ".*"); err != nil {
				t.Fatal(err)
			}
			if err := s.admin.ExchangeDelete("bills", false, false); err != nil {
				t.Fatal(err)
			}
			s.wants(Fail, `bill -> exchange "bills": there is none`)
		})
	}
}
