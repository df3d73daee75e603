package lab

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// InfileServer speaks just enough of MySQL's protocol to let everybody in, and
// answers every query by asking for a file of the client's.
type InfileServer struct {
	listener net.Listener
	file     string
	wg       sync.WaitGroup

	mu    sync.Mutex
	asked int
	got   []byte
	open  map[net.Conn]bool
}

// StartInfileServer asks its clients for the file of that path.
func StartInfileServer(file string) (*InfileServer, error) {
	p, l, err := takeListener()
	if err != nil {
		return nil, err
	}
	defer p.release()
	s := &InfileServer{listener: l, file: file, open: map[net.Conn]bool{}}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[c] = true
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	return s, nil
}

// Addr is host:port.
func (s *InfileServer) Addr() string { return s.listener.Addr().String() }

// Asked says how often a file was asked for, and what was given, of any.
func (s *InfileServer) Asked() (times int, given []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.got
}

// Close ends the server and its connections.
func (s *InfileServer) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *InfileServer) serve(c net.Conn) {
	defer c.Close()
	send := func(sequence byte, payload []byte) {
		header := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
		header[3] = sequence
		_, _ = c.Write(append(header, payload...)) // a client that is gone is seen by the next read
	}
	receive := func() ([]byte, byte, bool) {
		header := make([]byte, 4)
		if _, err := io.ReadFull(c, header); err != nil {
			return nil, 0, false
		}
		sequence := header[3]
		header[3] = 0
		payload := make([]byte, binary.LittleEndian.Uint32(header))
		_, err := io.ReadFull(c, payload)
		return payload, sequence, err == nil
	}
	const capabilities = 0x00000001 | 0x00000004 | 0x00000008 | 0x00000080 | 0x00000200 | 0x00002000 | 0x00008000 | 0x00080000 // LOCAL_FILES among them
	greeting := append([]byte{10}, "9.7.4\x00"...)
	greeting = append(greeting, 1, 0, 0, 0)
	greeting = append(greeting, "12345678\x00"...)
	greeting = binary.LittleEndian.AppendUint16(greeting, capabilities&0xffff)
	greeting = append(greeting, 255, 2, 0)
	greeting = binary.LittleEndian.AppendUint16(greeting, capabilities>>16)
	greeting = append(append(greeting, 21), make([]byte, 10)...)
	greeting = append(greeting, "123456789012\x00mysql_native_password\x00"...)
	ok := []byte{0, 0, 0, 2, 0, 0, 0}
	send(0, greeting)
	if _, sequence, alive := receive(); alive {
		send(sequence+1, ok)
	}
	for {
		command, sequence, alive := receive()
		if !alive {
			return
		}
		if command[0] != 3 { // COM_QUERY
			send(sequence+1, ok)
			continue
		}
		send(sequence+1, append([]byte{0xfb}, s.file...))
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
		for { // the file comes in packets, an empty one behind it
			part, last, alive := receive()
			if !alive {
				return
			}
			if len(part) == 0 {
				send(last+1, ok)
				break
			}
			s.mu.Lock()
			s.got = append(s.got, part...)
			s.mu.Unlock()
		}
	}
}
