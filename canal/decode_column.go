package canal

import (
	"fmt"
	"strings"

	"github.com/towpath/towpath/checkpoint"
)

// wire gives the type and meta that a server writes for a column into its table
// maps; false for a type that is not known.
func (c *ShapeColumn) wire(flavor checkpoint.Flavor) (kind byte, meta uint16, _ bool) {
	if strings.Contains(c.ColumnType, "COMPRESSED") && !c.named() {
		if c.DataType == "varchar" || c.DataType == "varbinary" {
			return typeVarcharCompressed, uint16(c.Octets), true
		}
		kind, meta, ok := blobWire(c.DataType)
		return kind + typeBlobCompressed - typeBlob, meta, ok
	}
	switch c.DataType {
	case "tinyint":
		return typeTiny, 0, true
	case "smallint":
		return typeShort, 0, true
	case "mediumint":
		return typeInt24, 0, true
	case "int":
		return typeLong, 0, true
	case "bigint":
		return typeLonglong, 0, true
	case "decimal":
		return typeNewDecimal, uint16(c.Precision)<<8 | uint16(c.Scale), true
	case "float":
		return typeFloat, 4, true
	case "double":
		return typeDouble, 8, true
	case "bit":
		return typeBit, uint16(c.Precision/8)<<8 | uint16(c.Precision%8), true
	case "date":
		return typeDate, 0, true
	case "time":
		return typeTime2, uint16(c.Fraction), true
	case "datetime":
		return typeDatetime2, uint16(c.Fraction), true
	case "timestamp":
		return typeTimestamp2, uint16(c.Fraction), true
	case "year":
		return typeYear, 0, true
	case "char", "binary":
		return typeString, stringMeta(c.Octets), true
	case "uuid", "inet6":
		return typeString, stringMeta(16), true
	case "inet4":
		return typeString, stringMeta(4), true
	case "varchar", "varbinary":
		return typeVarchar, uint16(c.Octets), true
	case "enum":
		names, _ := c.Names()
		if len(names) < 256 {
			return typeString, uint16(typeEnum)<<8 | 1, true
		}
		return typeString, uint16(typeEnum)<<8 | 2, true
	case "set":
		names, _ := c.Names()
		size := (len(names) + 7) / 8
		if size > 4 {
			size = 8
		}
		return typeString, uint16(typeSet)<<8 | uint16(size), true
	case "json":
		return typeJSON, 4, true
	case "vector":
		if flavor == checkpoint.MySQL {
			return typeVector, 4, true
		}
	case "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
		"geomcollection", "geometrycollection":
		return typeGeometry, 4, true
	}
	return blobWire(c.DataType)
}

func blobWire(dataType string) (kind byte, meta uint16, _ bool) {
	switch dataType {
	case "tinyblob", "tinytext":
		return typeBlob, 1, true
	case "blob", "text":
		return typeBlob, 2, true
	case "mediumblob", "mediumtext":
		return typeBlob, 3, true
	case "longblob", "longtext":
		return typeBlob, 4, true
	}
	return 0, 0, false
}

// stringMeta packs a CHAR's or BINARY's length in bytes, up to 1023, beside the
// type: its two high bits are flipped into the type's.
func stringMeta(length uint64) uint16 {
	return (uint16(typeString)^uint16(length&0x300)>>4)<<8 | uint16(length&0xff)
}

func stringLength(meta uint16) int {
	return int(meta&0xff) | int(meta>>8&0x30^0x30)<<4
}

// differs says how the event's column i is not the known column c; "" if it may
// well be that column.
func (b *planner) differs(i int, c *ShapeColumn) string {
	kind, meta, ok := c.wire(b.flavor)
	if !ok {
		return fmt.Sprintf("type %s is not known", c.DataType)
	}
	have := b.tm.ColumnType[i]
	old := map[byte]byte{typeTime: typeTime2, typeDatetime: typeDatetime2, typeTimestamp: typeTimestamp2}
	switch {
	case old[have] == kind && old[have] != 0 && c.Fraction == 0:
	case have != kind:
		return fmt.Sprintf("the event's type is %d, the definition's %s", have, c.ColumnType)
	case b.metas[i] != meta:
		return fmt.Sprintf("the event's type is %d with %#x, the definition's %s", have, b.metas[i], c.ColumnType)
	}
	if b.meta.signedness && b.meta.numeric[i] && have != typeYear && b.meta.unsigned[i] != c.Unsigned() {
		return fmt.Sprintf("unsigned is %t in the event, the definition is %s", b.meta.unsigned[i], c.ColumnType)
	}
	return ""
}

// derive makes of the event alone what it tells of column i.
func (b *planner) derive(i int) ShapeColumn {
	meta := b.metas[i]
	charset, _ := b.meta.charset(i)
	c := ShapeColumn{Charset: charset}
	binary := charset == binaryCharset
	pick := func(bytes, text string) string {
		if binary {
			return bytes
		}
		return text
	}
	switch b.kinds[i] {
	case typeTiny:
		c.DataType = "tinyint"
	case typeShort:
		c.DataType = "smallint"
	case typeInt24:
		c.DataType = "mediumint"
	case typeLong:
		c.DataType = "int"
	case typeLonglong:
		c.DataType = "bigint"
	case typeNewDecimal:
		c.DataType, c.Precision, c.Scale = "decimal", int(meta>>8), int(meta&0xff)
	case typeFloat:
		c.DataType = "float"
	case typeDouble:
		c.DataType = "double"
	case typeBit:
		c.DataType, c.Precision = "bit", int(meta>>8)*8+int(meta&0xff)
	case typeDate:
		c.DataType = "date"
	case typeTime, typeTime2:
		c.DataType, c.Fraction = "time", int(meta)
	case typeDatetime, typeDatetime2:
		c.DataType, c.Fraction = "datetime", int(meta)
	case typeTimestamp, typeTimestamp2:
		c.DataType, c.Fraction = "timestamp", int(meta)
	case typeYear:
		c.DataType = "year"
	case typeString:
		c.DataType, c.Octets = pick("binary", "char"), uint64(stringLength(meta))
	case typeVarchar, typeVarString:
		c.DataType, c.Octets = pick("varbinary", "varchar"), uint64(meta)
	case typeEnum:
		c.DataType = "enum"
	case typeSet:
		c.DataType = "set"
	case typeBlob:
		size := [...]string{"", "tiny", "", "medium", "long"}[min(meta, 4)]
		c.DataType = size + pick("blob", "text")
	case typeJSON:
		c.DataType = "json"
	case typeVector:
		c.DataType = "vector"
	case typeGeometry:
		c.DataType, c.Charset = "geometry", ""
	}
	c.ColumnType = c.DataType
	if b.meta.unsigned[i] {
		c.ColumnType += " unsigned"
	}
	return c
}

// ambiguous says what SELECT may show in more than one way of a column that is
// known from the event alone; "" if there is only one.
func (b *planner) ambiguous(i int, c ShapeColumn) string {
	switch {
	case b.meta.numeric[i] && !b.meta.signedness && c.DataType != "year":
		return "the event does not tell whether it is UNSIGNED"
	case b.meta.unsigned[i] && c.DataType != "year":
		return "the event does not tell whether it is ZEROFILL"
	case c.DataType == "float" || c.DataType == "double":
		return "the event does not tell its number of decimals"
	case b.flavor == checkpoint.MariaDB && c.DataType == "binary" && (c.Octets == 16 || c.Octets == 4):
		return "the event does not tell BINARY from UUID, INET4 and INET6"
	}
	return ""
}

// frame finds how the column's values are delimited.
func (b *planner) frame(i int, c *ShapeColumn, pc *planColumn) error {
	meta := b.metas[i]
	switch t := b.kinds[i]; t {
	case typeTiny, typeYear:
		pc.size = 1
	case typeShort:
		pc.size = 2
	case typeInt24, typeDate, typeTime:
		pc.size = 3
	case typeLong, typeTimestamp, typeFloat:
		pc.size = 4
	case typeLonglong, typeDouble, typeDatetime:
		pc.size = 8
	case typeTime2, typeTimestamp2, typeDatetime2:
		if meta > 6 {
			return b.disagree(c.Name, "%d digits of a second cannot be", meta)
		}
		pc.size = map[byte]int{typeTime2: 3, typeTimestamp2: 4, typeDatetime2: 5}[t] + (int(meta)+1)/2
	case typeNewDecimal:
		precision, scale := int(meta>>8), int(meta&0xff)
		if precision < 1 || precision > 65 || scale > precision {
			return b.disagree(c.Name, "DECIMAL(%d,%d) cannot be", precision, scale)
		}
		pc.size = decimalSize(precision, scale)
	case typeBit:
		pc.size = int(meta >> 8)
		if meta&0xff > 0 {
			pc.size++
		}
	case typeEnum, typeSet:
		pc.size = int(meta & 0xff)
	case typeVarchar, typeVarString, typeVarcharCompressed:
		pc.prefix = 1
		if meta > 255 {
			pc.prefix = 2
		}
	case typeString:
		pc.prefix = 1
		if stringLength(meta) > 255 {
			pc.prefix = 2
		}
	case typeBlob, typeBlobCompressed, typeGeometry, typeJSON, typeVector:
		if meta < 1 || meta > 4 {
			return b.disagree(c.Name, "a length of %d bytes cannot be", meta)
		}
		pc.prefix = int(meta)
	default:
		return b.unsupported(i, c.Name, fmt.Sprintf("type %d is not known", t))
	}
	if most := map[byte]int{typeBit: 8, typeEnum: 2, typeSet: 8}[b.kinds[i]]; most > 0 && (pc.size < 1 || pc.size > most) {
		return b.disagree(c.Name, "a value of %d bytes cannot be", pc.size)
	}
	return nil
}

func (b *planner) unsupported(i int, name, what string) error {
	if name == "" {
		name = fmt.Sprintf("number %d", i+1)
	}
	return &UnsupportedError{Table: b.name(), Column: name, What: what}
}

// render finds how the column's values are shown.
func (b *planner) render(i int, c *ShapeColumn, pc *planColumn) error {
	f := &pc.format
	f.decimals = -1
	f.fraction = c.Fraction
	switch t := b.kinds[i]; t {
	case typeTiny, typeShort, typeInt24, typeLong, typeLonglong:
		pc.render, f.unsigned = renderInteger, c.Unsigned()
		if c.Zerofill() {
			f.width, _ = c.width()
		}
	case typeFloat, typeDouble:
		pc.render = renderFloat
		if t == typeDouble {
			pc.render = renderDouble
		}
		*f, _ = c.real()
	case typeNewDecimal:
		pc.render, f.precision, f.decimals = renderDecimal, c.Precision, c.Scale
		if c.Zerofill() {
			f.width = c.Precision + min(c.Scale, 1)
		}
	case typeBit, typeGeometry, typeVector:
		pc.render = renderBytes
	case typeDate:
		pc.render = renderDate
	case typeTime:
		pc.render = renderOldTime
	case typeDatetime:
		pc.render = renderOldDatetime
	case typeTimestamp:
		pc.render = renderOldTimestamp
	case typeTime2:
		pc.render = renderTime2
	case typeDatetime2:
		pc.render = renderDatetime2
	case typeTimestamp2:
		pc.render = renderTimestamp2
	case typeYear:
		pc.render = renderYear
	case typeJSON:
		pc.render = renderJSON
	case typeEnum, typeSet:
		pc.render = renderEnum
		if t == typeSet {
			pc.render = renderSet
		}
		return b.nameValues(i, c, f)
	case typeString, typeVarchar, typeVarString, typeBlob:
		return b.renderString(i, c, pc)
	case typeBlobCompressed, typeVarcharCompressed:
		return b.unsupported(i, c.Name, "the values of a COMPRESSED column are compressed in the binlog; drop the attribute, or the column from the configuration")
	default:
		return b.unsupported(i, c.Name, fmt.Sprintf("type %d is not known", t))
	}
	return nil
}

func (b *planner) renderString(i int, c *ShapeColumn, pc *planColumn) error {
	pc.format.length = int(c.Octets)
	switch c.DataType {
	case "binary":
		pc.render = renderBinary
		return nil
	case "uuid":
		pc.render = renderUUID
		return nil
	case "inet4":
		pc.render = renderInet4
		return nil
	case "inet6":
		pc.render = renderInet6
		return nil
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		pc.render = renderBytes
		return nil
	}
	text, ok := transcoderFor(c.Charset)
	if !ok {
		return b.unsupported(i, c.Name, fmt.Sprintf("its character set %q (collation %d) is not known; convert the column to utf8mb4", c.Charset, b.meta.collation[i]))
	}
	pc.render, pc.format.text = renderText, text
	return nil
}

// nameValues fills in the values of an ENUM or SET.
func (b *planner) nameValues(i int, c *ShapeColumn, f *format) error {
	if names := b.meta.names[i]; names != nil {
		text, ok := transcoderFor(c.Charset)
		if !ok {
			return b.unsupported(i, c.Name, fmt.Sprintf("its character set %q (collation %d) is not known; convert the column to utf8mb4", c.Charset, b.meta.collation[i]))
		}
		for _, name := range names {
			f.names = append(f.names, text(nil, name))
		}
		return nil
	}
	names, ok := c.Names()
	if !ok {
		return b.unsupported(i, c.Name, "the information schema does not tell its values in full; set binlog_row_metadata=FULL")
	}
	for _, name := range names {
		f.names = append(f.names, []byte(name))
	}
	return nil
}
