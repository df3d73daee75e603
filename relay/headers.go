package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/towpath/towpath/relay/rabbit"
)

// appendJSONHeaders adds the members of a JSON object as headers: scalars as
// their text, nested values as their JSON text, null not at all. A name that is
// there already wins. NULL and an empty document add nothing.
func appendJSONHeaders(headers []rabbit.Header, document []byte) ([]rabbit.Header, error) {
	if len(bytes.TrimSpace(document)) == 0 {
		return headers, nil
	}
	d := json.NewDecoder(bytes.NewReader(document))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("it is not a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not valid JSON")
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, fmt.Errorf("it is not valid JSON")
		}
		value, null := headerText(raw)
		known := slices.ContainsFunc(headers, func(h rabbit.Header) bool { return h.Name == name })
		if !null && !known {
			headers = append(headers, rabbit.Header{Name: name.(string), Value: value})
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("it is not valid JSON")
	}
	return headers, nil
}

func headerText(raw json.RawMessage) (text string, null bool) {
	switch raw[0] {
	case 'n':
		return "", true
	case '"':
		if err := json.Unmarshal(raw, &text); err == nil {
			return text, false
		}
	}
	return string(raw), false
}
