package canal

import (
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/towpath/towpath/checkpoint"
)

// metadata is a table map's optional metadata by column. The table map holds it
// in lists over the columns of a kind.
type metadata struct {
	numeric    []bool // the column is one of those that signedness is told of
	unsigned   []bool
	signedness bool       // unsigned is known
	collation  []uint64   // of text, ENUM and SET columns; 0 where it is not known
	names      [][][]byte // of ENUM and SET columns, in the column's character set; nil where not known
	primary    []int
}

// realType is a column's type with ENUM and SET told from strings.
func realType(kind byte, meta uint16) byte {
	if kind == typeString {
		if real := byte(meta >> 8); real == typeEnum || real == typeSet {
			return real
		}
	}
	return kind
}

// checkTableMap says what of a table map cannot be.
func checkTableMap(tm *replication.TableMapEvent) error {
	n := len(tm.ColumnType)
	if n == 0 || len(tm.ColumnMeta) != n || len(tm.NullBitmap) != (n+7)/8 {
		return fmt.Errorf("malformed table map of %d columns", n)
	}
	if names := len(tm.ColumnName); names != 0 && names != n {
		return fmt.Errorf("malformed table map: %d names for %d columns", names, n)
	}
	return nil
}

// readMetadata reads the optional metadata of columns of these real types.
func readMetadata(tm *replication.TableMapEvent, kinds []byte, flavor checkpoint.Flavor) (*metadata, error) {
	n := len(kinds)
	m := &metadata{numeric: make([]bool, n), unsigned: make([]bool, n), collation: make([]uint64, n), names: make([][][]byte, n)}
	var numeric, text, named, enums, sets []int
	for i, kind := range kinds {
		switch kind {
		case typeTiny, typeShort, typeInt24, typeLong, typeLonglong, typeNewDecimal, typeFloat, typeDouble, typeYear:
			numeric = append(numeric, i)
			m.numeric[i] = true
		case typeString, typeVarString, typeVarchar, typeBlob, typeBlobCompressed, typeVarcharCompressed, typeVector:
			text = append(text, i)
		case typeGeometry:
			if flavor == checkpoint.MariaDB {
				text = append(text, i)
			}
		case typeEnum:
			named, enums = append(named, i), append(enums, i)
		case typeSet:
			named, sets = append(named, i), append(sets, i)
		}
	}
	if bitmap := tm.SignednessBitmap; len(bitmap) > 0 {
		if len(bitmap) != (len(numeric)+7)/8 {
			return nil, fmt.Errorf("malformed table map: signedness of %d bytes for %d columns", len(bitmap), len(numeric))
		}
		m.signedness = true
		for k, i := range numeric {
			m.unsigned[i] = bitmap[k>>3]&(0x80>>(k&7)) != 0
		}
	}
	if err := m.setCollations(text, tm.DefaultCharset, tm.ColumnCharset); err != nil {
		return nil, err
	}
	if err := m.setCollations(named, tm.EnumSetDefaultCharset, tm.EnumSetColumnCharset); err != nil {
		return nil, err
	}
	if err := m.setNames(enums, tm.EnumStrValue); err != nil {
		return nil, err
	}
	if err := m.setNames(sets, tm.SetStrValue); err != nil {
		return nil, err
	}
	for _, i := range tm.PrimaryKey {
		if i >= uint64(n) {
			return nil, fmt.Errorf("malformed table map: column %d of %d in its primary key", i, n)
		}
		m.primary = append(m.primary, int(i))
	}
	return m, nil
}

// setCollations spreads collation ids over columns: a default and pairs of
// (place, id) that differ from it, or one for each column.
func (m *metadata) setCollations(columns []int, common, each []uint64) error {
	switch {
	case len(common) > 0:
		for _, i := range columns {
			m.collation[i] = common[0]
		}
		for pairs := common[1:]; len(pairs) >= 2; pairs = pairs[2:] {
			if pairs[0] >= uint64(len(columns)) {
				return fmt.Errorf("malformed table map: collation of text column %d of %d", pairs[0], len(columns))
			}
			m.collation[columns[pairs[0]]] = pairs[1]
		}
	case len(each) > 0:
		if len(each) != len(columns) {
			return fmt.Errorf("malformed table map: %d collations for %d columns", len(each), len(columns))
		}
		for k, i := range columns {
			m.collation[i] = each[k]
		}
	}
	return nil
}

func (m *metadata) setNames(columns []int, names [][][]byte) error {
	if len(names) == 0 {
		return nil
	}
	if len(names) != len(columns) {
		return fmt.Errorf("malformed table map: lists of values for %d of %d columns", len(names), len(columns))
	}
	for k, i := range columns {
		m.names[i] = names[k]
	}
	return nil
}

// charset gives a column's character set where the event tells it.
func (m *metadata) charset(i int) (string, bool) {
	name, ok := charsetOfCollation[m.collation[i]]
	return name, ok
}

func (m *metadata) inPrimary(i int) bool {
	for _, k := range m.primary {
		if k == i {
			return true
		}
	}
	return false
}

// vetTableMap looks through a table map event's body for what would make the
// library allocate without bound: lists of ENUM and SET values that claim more
// values than they have bytes. Everything else that is malformed makes it fail
// or panic, which the caller must catch.
func vetTableMap(body []byte) error {
	p := imageParser{rest: body}
	p.take(8) // table id and flags
	for range 2 {
		p.take(lengthByte(&p) + 1) // schema and table, each with a zero behind
	}
	columns := p.lenenc()
	p.take(columns) // types
	p.take(p.lenenc())
	p.take((columns + 7) / 8)
	for len(p.rest) > 0 && !p.failed {
		kind := lengthByte(&p)
		value := p.take(p.lenenc())
		if k := byte(kind); k != replication.TABLE_MAP_OPT_META_SET_STR_VALUE && k != replication.TABLE_MAP_OPT_META_ENUM_STR_VALUE {
			continue
		}
		lists := imageParser{rest: value}
		for len(lists.rest) > 0 && !lists.failed {
			n := lists.lenenc()
			for ; n > 0 && !lists.failed; n-- {
				lists.take(lists.lenenc())
			}
		}
		p.failed = p.failed || lists.failed
	}
	if p.failed {
		return fmt.Errorf("malformed table map")
	}
	return nil
}

func lengthByte(p *imageParser) uint64 {
	if b := p.take(1); len(b) == 1 {
		return uint64(b[0])
	}
	return 0
}

// lenenc reads the protocol's length-encoded integer.
func (p *imageParser) lenenc() uint64 {
	first := lengthByte(p)
	size := uint64(0)
	switch first {
	case 0xfc:
		size = 2
	case 0xfd:
		size = 3
	case 0xfe:
		size = 8
	default:
		return first
	}
	var n uint64
	for i, c := range p.take(size) {
		n |= uint64(c) << (8 * i)
	}
	return n
}
