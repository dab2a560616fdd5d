package bench

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"
)

// anyData is the mark of all server-sent events.
var anyData = []byte("\ndata: ")

const (
	// spread limits the number of events between the fastest and the slowest connection of a group.
	spread     = 1 << 17
	readBuffer = 256 << 10
)

// A loop is the single thread that reads all sockets.
type loop struct {
	epoll   int
	wake    [2]int
	orders  chan order
	out     *gob.Encoder
	groups  map[int]*group
	sockets map[int32]*socket
	buffer  []byte
}

type group struct {
	Group
	id      int
	sockets []*socket
	// reached has, by level, the number of sockets that have received so many events.
	reached  []int32
	level    uint64
	reported uint64
	opening  int
	stamp    bool

	until   time.Time
	began   time.Time
	asking  int
	answers uint64
}

type socket struct {
	fd    int
	group *group
	begun bool
	count uint64
	tail  []byte
	// missing is the number of bytes of an answer that have not arrived.
	missing int
	next    int
	sent    time.Time
	stamps  []int64
}

// serveOrders runs the loop until the orders end.
func serveOrders(in io.Reader, out io.Writer) error {
	l := &loop{
		orders: make(chan order, 16), out: gob.NewEncoder(out), groups: map[int]*group{}, sockets: map[int32]*socket{},
		buffer: make([]byte, readBuffer),
	}
	var err error
	if l.epoll, err = syscall.EpollCreate1(0); err != nil {
		return err
	}
	if err := syscall.Pipe(l.wake[:]); err != nil {
		return err
	}
	if err := l.add(l.wake[0]); err != nil {
		return err
	}
	go l.listen(gob.NewDecoder(in))
	return l.run()
}

func (l *loop) listen(in *gob.Decoder) {
	defer syscall.Close(l.wake[1])
	defer close(l.orders)
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		l.orders <- o
		syscall.Write(l.wake[1], []byte{0})
	}
}

func (l *loop) add(fd int) error {
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

func (l *loop) run() error {
	events := make([]syscall.EpollEvent, 512)
	for {
		n, err := syscall.EpollWait(l.epoll, events, -1)
		if err != nil && err != syscall.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == int32(l.wake[0]) {
				if done, err := l.obey(); done || err != nil {
					return err
				}
			} else if s := l.sockets[e.Fd]; s != nil {
				if err := l.read(s); err != nil {
					l.lose(s, err)
				}
			}
		}
		for _, g := range l.groups {
			if g.level > g.reported {
				g.reported = g.level
				l.out.Encode(report{ID: g.id, Level: g.level})
			}
		}
	}
}

// lose reports a broken connection, once.
func (l *loop) lose(s *socket, err error) {
	delete(l.sockets, int32(s.fd))
	syscall.Close(s.fd)
	failed := report{ID: s.group.id, Level: s.group.level, Failed: err.Error()}
	failed.Answer = s.group.opening > 0 || s.group.asking > 0
	s.group.opening, s.group.asking = 0, 0
	l.out.Encode(failed)
}

func (l *loop) obey() (done bool, err error) {
	var b [1]byte
	if n, _ := syscall.Read(l.wake[0], b[:]); n == 0 {
		return true, nil
	}
	o := <-l.orders
	g := l.groups[o.ID]
	switch {
	case o.Open != nil:
		if err := l.open(o.ID, *o.Open); err != nil {
			return false, l.out.Encode(report{ID: o.ID, Answer: true, Failed: err.Error()})
		}
		return false, nil // the report is sent when the last head has arrived
	case o.Query > 0:
		return false, l.query(g, o.Query)
	case o.Stamp:
		g.stamp = true
	case o.Stamps:
		m := report{ID: o.ID, Answer: true, Processor: processorTime()}
		if g != nil {
			g.stamp = false
			for _, s := range g.sockets {
				m.Stamps = append(m.Stamps, s.stamps)
				s.stamps = nil
			}
		}
		return false, l.out.Encode(m)
	case o.Close:
		for _, s := range g.sockets {
			if l.sockets[int32(s.fd)] == s {
				delete(l.sockets, int32(s.fd))
				syscall.Close(s.fd)
			}
		}
	}
	return false, l.out.Encode(report{ID: o.ID, Answer: true})
}

func (l *loop) open(id int, o Group) error {
	address, err := net.ResolveTCPAddr("tcp4", o.Address)
	if err != nil {
		return err
	}
	if len(o.Mark) == 0 {
		o.Mark = anyData
	}
	g := &group{Group: o, id: id, reached: make([]int32, spread), opening: o.Connections}
	l.groups[id] = g
	to := &syscall.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())}
	for i := range o.Connections {
		fd, err := l.connect(to, o)
		if err != nil {
			return err
		}
		s := &socket{fd: fd, group: g, next: i}
		if o.Manner == Query {
			s.next = i * len(o.Requests) / o.Connections
		}
		g.sockets = append(g.sockets, s)
		l.sockets[int32(fd)] = s
		if o.Manner == Query || o.Manner == Wait {
			g.opening--
		}
		if o.Manner != Query {
			if _, err := syscall.Write(fd, o.Requests[i%len(o.Requests)]); err != nil {
				return err
			}
		}
		if err := syscall.SetNonblock(fd, true); err != nil {
			return err
		}
		if err := l.add(fd); err != nil {
			return err
		}
	}
	if g.opening == 0 {
		return l.out.Encode(report{ID: id, Answer: true})
	}
	return nil
}

func (l *loop) connect(to syscall.Sockaddr, o Group) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if o.ReceiveBuffer > 0 {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, o.ReceiveBuffer); err != nil {
			return 0, err
		}
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return 0, err
	}
	return fd, syscall.Connect(fd, to)
}

func (l *loop) read(s *socket) error {
	before := copy(l.buffer, s.tail)
	room := l.buffer[before:]
	if s.group.Manner == Ignore {
		room = room[:256]
	}
	n, err := syscall.Read(s.fd, room)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return errors.New("a connection was closed by the server")
	}
	data := l.buffer[:before+n]
	if !s.begun {
		if err := l.begin(s, data); err != nil {
			return err
		}
	}
	if s.group.Manner == Query {
		return l.answered(s, data)
	}
	mark := s.group.Mark
	k := bytes.Count(data, mark)
	s.tail = append(s.tail[:0], data[max(0, len(data)-len(mark)+1):]...)
	if k > 0 {
		l.count(s, uint64(k))
	}
	return nil
}

// begin checks the head of an answer.
func (l *loop) begin(s *socket, data []byte) error {
	if greeting := s.group.Greeting; greeting != nil && !bytes.Contains(data, greeting) {
		return nil
	} else if greeting == nil && !bytes.HasPrefix(data, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("unexpected answer: %.400q", data)
	}
	s.begun = true
	g := s.group
	if g.Manner == Ignore {
		if err := syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_DEL, s.fd, nil); err != nil {
			return err
		}
	}
	if g.Manner == Follow || g.Manner == Ignore {
		if g.opening--; g.opening == 0 {
			return l.out.Encode(report{ID: g.id, Answer: true})
		}
	}
	return nil
}

func (l *loop) count(s *socket, k uint64) {
	g := s.group
	if g.stamp {
		now := time.Now().UnixNano()
		for range k {
			s.stamps = append(s.stamps, now)
		}
	}
	if len(g.sockets) == 1 {
		s.count += k
		g.level = s.count
		return
	}
	for range k {
		s.count++
		g.reached[s.count%spread]++
	}
	for g.reached[(g.level+1)%spread] == int32(len(g.sockets)) {
		g.level++
		g.reached[g.level%spread] = 0
	}
}

// query starts the requests of a group.
func (l *loop) query(g *group, d time.Duration) error {
	g.began = time.Now()
	g.until, g.answers, g.asking = g.began.Add(d), 0, len(g.sockets)
	for _, s := range g.sockets {
		if err := s.ask(); err != nil {
			return err
		}
	}
	return nil
}

func (s *socket) ask() error {
	s.begun, s.missing, s.sent = false, 0, time.Now()
	request := s.group.Requests[s.next%len(s.group.Requests)]
	s.next++
	_, err := syscall.Write(s.fd, request)
	return err
}

var (
	headEnd = []byte("\r\n\r\n")
	length  = []byte("Content-Length: ")
)

// answered reads a part of an answer, and sends the next request after the last part.
func (l *loop) answered(s *socket, data []byte) error {
	if s.missing == 0 {
		end, at := bytes.Index(data, headEnd), bytes.Index(data, length)
		if end < 0 || at < 0 || at > end {
			return fmt.Errorf("an answer without length: %.400q", data)
		}
		digits, _, _ := bytes.Cut(data[at+len(length):end+2], []byte("\r"))
		size, err := strconv.Atoi(string(digits))
		if err != nil {
			return err
		}
		s.missing = end + len(headEnd) + size
	}
	if s.missing -= len(data); s.missing > 0 {
		return nil
	}
	g := s.group
	g.answers++
	now := time.Now()
	if g.stamp {
		s.stamps = append(s.stamps, int64(now.Sub(s.sent)))
	}
	if now.Before(g.until) {
		return s.ask()
	}
	if g.asking--; g.asking == 0 {
		return l.out.Encode(report{ID: g.id, Answer: true, Answers: g.answers, Took: time.Since(g.began)})
	}
	return nil
}
