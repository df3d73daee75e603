package reconcile

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// entry is a sent row as the comparison needs it.
type entry struct {
	id      string // at most 255 bytes
	content [32]byte
	key     string // finds the row again
	done    bool   // the application has moved it on already
}

func (e *entry) size() int { return len(e.id) + len(e.key) + 128 }

// spool sorts entries by id, byte by byte, through files: a run of entries is
// sorted in memory and written out when it is full, and the runs are merged.
type spool struct {
	dir   string
	limit int // bytes of one run
	run   []entry
	size  int
	files []*os.File
}

// runBytes is what one run may take in memory.
const runBytes = 32 << 20

// newSpool spools in a folder of its own below dir, "" for the system's.
func newSpool(dir string) (*spool, error) {
	own, err := os.MkdirTemp(dir, "towpath-reconcile-")
	if err != nil {
		return nil, fmt.Errorf("make a folder to sort in: %w", err)
	}
	return &spool{dir: own, limit: runBytes}, nil
}

func (s *spool) add(e entry) error {
	s.run = append(s.run, e)
	if s.size += e.size(); s.size < s.limit {
		return nil
	}
	return s.flush()
}

// flush writes the run in hand.
func (s *spool) flush() error {
	if len(s.run) == 0 {
		return nil
	}
	slices.SortFunc(s.run, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	f, err := os.CreateTemp(s.dir, "run-")
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.files = append(s.files, f)
	w := bufio.NewWriterSize(f, 256<<10)
	for i := range s.run {
		if err := writeEntry(w, &s.run[i]); err != nil {
			return fmt.Errorf("spool: %w", err)
		}
	}
	clear(s.run)
	s.run, s.size = s.run[:0], 0
	if err := w.Flush(); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// close removes the files.
func (s *spool) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func writeEntry(w *bufio.Writer, e *entry) error {
	var head []byte
	head = append(head, byte(len(e.id)))
	head = append(head, e.id...)
	head = append(head, e.content[:]...)
	head = binary.AppendUvarint(head, uint64(len(e.key)))
	head = append(head, e.key...)
	done := byte(0)
	if e.done {
		done = 1
	}
	_, err := w.Write(append(head, done))
	return err
}

// readEntry reads what writeEntry wrote; io.EOF at the end.
func readEntry(r *bufio.Reader) (e entry, err error) {
	n, err := r.ReadByte()
	if err != nil {
		return e, err
	}
	text := func(n uint64) string {
		b := make([]byte, n)
		if _, e := io.ReadFull(r, b); e != nil && err == nil {
			err = errors.Join(io.ErrUnexpectedEOF, e)
		}
		return string(b)
	}
	e.id = text(uint64(n))
	copy(e.content[:], text(32))
	length, lengthErr := binary.ReadUvarint(r)
	if lengthErr != nil {
		return e, io.ErrUnexpectedEOF
	}
	e.key = text(length)
	e.done = text(1) == "\x01"
	return e, err
}

// sorted starts to read the entries in order; next returns false at the end.
func (s *spool) sorted() (next func() (entry, bool, error), err error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	var m merge
	advance := func(r *run) error {
		switch r.head, err = readEntry(r.reader); {
		case err == nil:
			heap.Push(&m, r)
		case err != io.EOF:
			return fmt.Errorf("read the spool: %w", err)
		}
		return nil
	}
	for _, f := range s.files {
		if err := advance(&run{reader: bufio.NewReaderSize(f, 64<<10)}); err != nil {
			return nil, err
		}
	}
	return func() (entry, bool, error) {
		if len(m) == 0 {
			return entry{}, false, nil
		}
		first := heap.Pop(&m).(*run)
		e := first.head
		return e, true, advance(first)
	}, nil
}

// run is one sorted file and its first entry.
type run struct {
	head   entry
	reader *bufio.Reader
}

// merge is a heap of runs by their first entries.
type merge []*run

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, j int) bool { return m[i].head.id < m[j].head.id }
func (m merge) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(r any)        { *m = append(*m, r.(*run)) }
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
