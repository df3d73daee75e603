package configs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Hash is 16 hex digits that are equal for two files of the same effect: it
// covers every setting with its defaults, and of a secret only whether it is
// given. Comments, anchors, key order and the spelling of values do not count.
func (c *Config) Hash() string {
	// Cannot fail: a Config is a tree of plain values, and its floats are finite.
	text, _ := json.Marshal(c)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
