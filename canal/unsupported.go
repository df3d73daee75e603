package canal

import (
	"fmt"
	"strings"
)

// UnsupportedColumns says of each column of a shape that is wanted, and whose
// values the decoder would refuse, what the matter is and what mends it. Without
// full metadata in the binlog (binlog_row_metadata FULL) the shape alone must
// tell the values of an ENUM or SET.
func (s *Shape) UnsupportedColumns(interest Interest, fullMetadata bool) map[string]string {
	found := map[string]string{}
	for i := range s.Columns {
		c := &s.Columns[i]
		if interest.Columns != nil && !interest.Columns(c.Name) {
			continue
		}
		if why := c.unsupported(fullMetadata); why != "" {
			found[c.Name] = why
		}
	}
	return found
}

func (c *ShapeColumn) unsupported(fullMetadata bool) string {
	if strings.Contains(c.ColumnType, "COMPRESSED") && !c.named() {
		return "the values of a COMPRESSED column are compressed in the binlog; drop the attribute, or the column from the configuration"
	}
	if _, known := transcoderFor(c.Charset); c.Charset != "" && !known {
		return fmt.Sprintf("its character set %s is not known; convert the column to utf8mb4", c.Charset)
	}
	if _, told := c.Names(); !told && !fullMetadata {
		return "the information schema does not tell its values in full; set binlog_row_metadata = FULL"
	}
	return ""
}
