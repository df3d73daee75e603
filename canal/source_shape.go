package canal

import (
	"github.com/towpath/towpath/checkpoint"
)

func (c *connection) loadShape(name TableName, after checkpoint.Mark) (*Shape, bool, error) {
	shape, err := LoadShape(c.ctx, c.source.options.DB, name)
	return shape, true, err
}
