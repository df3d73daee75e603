package relay

import (
	"github.com/towpath/towpath/checkpoint"
	"github.com/towpath/towpath/configs"
)

// parked is a refused entry as it is made durable: a reference where the table
// keeps its unsent rows, the image where nothing tells sent and unsent apart.
func (e *entry) parked(term uint64) checkpoint.Parked {
	p := checkpoint.Parked{
		Label: e.table.label, Schema: e.table.name.Schema, Name: e.table.name.Name,
		Key: []byte(e.ref[4:]), Sequence: term<<40 | e.order,
		MessageID: e.message.ID, Destination: e.message.Exchange + "/" + e.message.RoutingKey,
		Class: string(e.fault.class), Code: e.fault.code, Reason: e.fault.reason, Failed: e.fault.class == classPoison,
	}
	if e.gate != "" {
		p.Ordering = []byte(e.gate[4:])
	}
	if e.table.config.AfterPublish == configs.Keep {
		p.Image = e.row.AppendImage(nil)
	}
	return p
}
