package canal

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
)

// unpacker reads the events inside of compressed transactions, one at a time,
// so that what is held is one event and the decoder's window (promise P7).
type unpacker struct {
	decoder *zstd.Decoder // made at the first use
}

// payloadError says that a compressed transaction cannot be read.
type payloadError struct{ detail string }

func (e *payloadError) Error() string { return "compressed transaction: " + e.detail }

// Fields of a compressed transaction's header.
const (
	payloadEnd         = 0
	payloadCompression = 2
)

// Kinds of compression.
const (
	compressZstd = 0
	compressNone = 255
)

// maxWindow bounds the decoder's memory. The server compresses at levels up to
// 22, whose windows reach 128 MiB.
const maxWindow = 128 << 20

// events calls f with each event inside; an event's memory becomes f's.
func (u *unpacker) events(body []byte, f func(raw []byte) error) error {
	compression, data, err := payloadHeader(body)
	if err != nil {
		return err
	}
	var r io.Reader = bytes.NewReader(data)
	switch compression {
	case compressNone:
	case compressZstd:
		if u.decoder == nil {
			u.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
			if err != nil {
				return &payloadError{"decoder: " + err.Error()}
			}
		}
		if err := u.decoder.Reset(r); err != nil {
			return &payloadError{"zstd: " + err.Error()}
		}
		r = u.decoder
	default:
		return &payloadError{"unknown compression"}
	}
	var header [headerLen]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return &payloadError{"cut off"}
		}
		raw, err := readEvent(r, header[:])
		if err != nil {
			return err
		}
		if err := f(raw); err != nil {
			return err
		}
	}
}

// readEvent reads the rest of an event. Memory grows with what is there, not
// with what the header says.
func readEvent(r io.Reader, header []byte) ([]byte, error) {
	size := binary.LittleEndian.Uint32(header[9:])
	if size < headerLen {
		return nil, &payloadError{"event too short"}
	}
	const trusted = 64 << 10
	if size <= trusted {
		raw := make([]byte, size)
		copy(raw, header)
		if _, err := io.ReadFull(r, raw[headerLen:]); err != nil {
			return nil, &payloadError{"cut off"}
		}
		return raw, nil
	}
	buf := bytes.NewBuffer(append(make([]byte, 0, trusted), header...))
	if _, err := io.CopyN(buf, r, int64(size)-headerLen); err != nil {
		return nil, &payloadError{"cut off"}
	}
	return buf.Bytes(), nil
}

// payloadHeader reads the fields before the data: each a type and a length,
// one byte below 251 as all that the server writes, then the value.
func payloadHeader(b []byte) (compression uint64, data []byte, err error) {
	bad := &payloadError{"header makes no sense"}
	for {
		if len(b) < 1 {
			return 0, nil, bad
		}
		field := b[0]
		if field == payloadEnd {
			return compression, b[1:], nil
		}
		if len(b) < 2 || b[1] > 250 || len(b) < 2+int(b[1]) {
			return 0, nil, bad
		}
		value := b[2 : 2+int(b[1])]
		b = b[2+len(value):]
		if field == payloadCompression {
			if compression, err = lengthEncoded(value); err != nil {
				return 0, nil, bad
			}
		}
	}
}

func lengthEncoded(b []byte) (uint64, error) {
	width := 0
	switch {
	case len(b) == 0:
		return 0, errShortEvent
	case b[0] < 251:
		return uint64(b[0]), nil
	case b[0] == 252:
		width = 2
	case b[0] == 253:
		width = 3
	case b[0] == 254:
		width = 8
	}
	if width == 0 || len(b) < 1+width {
		return 0, errShortEvent
	}
	var v [8]byte
	copy(v[:], b[1:1+width])
	return binary.LittleEndian.Uint64(v[:]), nil
}
