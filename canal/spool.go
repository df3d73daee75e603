package canal

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
)

// spool holds the events of one group until its end was seen (promise P1), in
// memory up to a limit and on disk past it (promise P7). The file has no name:
// it is unlinked as soon as it is made, so that no crash leaves it behind.
type spool struct {
	limit int64
	dir   string

	memory [][]byte
	size   int64 // of memory, with what a slice costs
	file   *os.File
	writer *bufio.Writer
	length int64 // of the file

	saves []savepoint
}

// savepoint is a place to which a group may be rolled back.
type savepoint struct {
	name   string
	events int   // in memory
	length int64 // of the file
}

const (
	eventOverhead = 64 // bytes that an event in memory costs beside its own
	spoolBuffer   = 64 << 10
)

func (s *spool) empty() bool { return len(s.memory) == 0 && s.file == nil }

// add appends an event, whose memory the spool then owns.
func (s *spool) add(raw []byte) error {
	if s.file == nil {
		if s.size+int64(len(raw))+eventOverhead <= s.limit {
			s.memory = append(s.memory, raw)
			s.size += int64(len(raw)) + eventOverhead
			return nil
		}
		if err := s.spill(); err != nil {
			return err
		}
	}
	if _, err := s.writer.Write(raw); err != nil {
		return s.fail("write", err)
	}
	s.length += int64(len(raw))
	return nil
}

// save remembers the current place under a name, which it takes from an
// earlier one.
func (s *spool) save(name string) {
	s.saves = slices.DeleteFunc(s.saves, func(p savepoint) bool { return p.name == name })
	s.saves = append(s.saves, savepoint{name, len(s.memory), s.length})
}

// rollbackTo forgets what was added since the place was saved: a server logs
// ROLLBACK TO, and the rows that it takes back, when the transaction has also
// changed a table that cannot be rolled back. known is false for a name that
// was not saved.
func (s *spool) rollbackTo(name string) (known bool, _ error) {
	i := slices.IndexFunc(s.saves, func(p savepoint) bool { return p.name == name })
	if i < 0 {
		return false, nil
	}
	p := s.saves[i]
	s.saves = s.saves[:i+1]
	for _, raw := range s.memory[p.events:] {
		s.size -= int64(len(raw)) + eventOverhead
	}
	clear(s.memory[p.events:])
	s.memory = s.memory[:p.events]
	if s.file == nil || p.length == s.length {
		return true, nil
	}
	if err := s.writer.Flush(); err != nil {
		return true, s.fail("write", err)
	}
	if err := s.file.Truncate(p.length); err != nil {
		return true, s.fail("shorten", err)
	}
	if _, err := s.file.Seek(p.length, io.SeekStart); err != nil {
		return true, s.fail("shorten", err)
	}
	s.length = p.length
	return true, nil
}

func (s *spool) spill() error {
	f, err := os.CreateTemp(s.dir, "towpath-transaction-*")
	if err != nil {
		return s.fail("create", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return s.fail("unlink", err)
	}
	s.file, s.writer = f, bufio.NewWriterSize(f, spoolBuffer)
	return nil
}

// each calls f with every event, in order. An event that comes from disk is of
// its own memory.
func (s *spool) each(f func(raw []byte) error) error {
	for _, raw := range s.memory {
		if err := f(raw); err != nil {
			return err
		}
	}
	if s.file == nil {
		return nil
	}
	if err := s.writer.Flush(); err != nil {
		return s.fail("write", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return s.fail("rewind", err)
	}
	r := bufio.NewReaderSize(s.file, spoolBuffer)
	for {
		header, err := r.Peek(headerLen)
		if err == io.EOF && len(header) == 0 {
			return nil
		}
		if err != nil {
			return s.fail("read", err)
		}
		raw := make([]byte, binary.LittleEndian.Uint32(header[9:]))
		if _, err := io.ReadFull(r, raw); err != nil {
			return s.fail("read", err)
		}
		if err := f(raw); err != nil {
			return err
		}
	}
}

// reset forgets the events and gives memory and disk back.
func (s *spool) reset() {
	clear(s.memory)
	s.memory, s.size, s.saves = s.memory[:0], 0, s.saves[:0]
	if s.file != nil {
		s.file.Close() // nothing to keep: an error frees the disk all the same
		s.file, s.writer, s.length = nil, nil, 0
	}
}

func (s *spool) fail(verb string, err error) error {
	dir := s.dir
	if dir == "" {
		dir = os.TempDir()
	}
	return fmt.Errorf("%s spool of a large transaction in %s (source.spool_dir): %w", verb, dir, err)
}
