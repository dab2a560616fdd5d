package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// wireVersion is the version of the messages. Both ends are the same program, so that a difference is an error.
const wireVersion = 5

// maxPacket limits a message between the server and an init, maxSpec one between the server and a process that starts.
const (
	maxPacket = 8 << 10
	maxSpec   = 4 << 20
	maxFiles  = 5
)

// The operations that the server requests of an init, and the events that the init reports.
const (
	opStart     = "start"
	opSignal    = "signal"
	opSignalAll = "signal_all"
	opDial      = "dial"
	opListen    = "listen"

	eventReady     = "ready"
	eventFailed    = "failed"
	eventExited    = "exited"
	eventAnswered  = "answered"
	eventNetworked = "networked"
)

// A setup is the first message to an init.
type setup struct {
	Version int
	Config  Config
}

// A request is a message of the server to an init.
type request struct {
	Op string
	// Process is the number of a process. Call is the number of a request with an answer. The server chooses them and never repeats one.
	Process uint64         `json:",omitempty"`
	Signal  syscall.Signal `json:",omitempty"`
	Call    uint64         `json:",omitempty"`
	Port    int            `json:",omitempty"`
	// OwnNetwork is Spec.OwnNetwork.
	OwnNetwork bool `json:",omitempty"`
	// Private is Spec.Private.
	Private bool `json:",omitempty"`
}

// An event is a message of an init to the server.
type event struct {
	Event   string
	Process uint64 `json:",omitempty"`
	Call    uint64 `json:",omitempty"`
	// Status is the status of a process as of wait4.
	Status uint32 `json:",omitempty"`
	Error  string `json:",omitempty"`
}

// A spec describes the program of a process. The process gets it after it was attributed.
type spec struct {
	Version  int
	Argv     []string
	Cwd      string
	Env      []string
	Terminal *unix.Winsize `json:",omitempty"`
	UID      int
	// MaxProcesses limits the processes of the user; 0: no limit.
	MaxProcesses int
	// Drive is the folder of the drive, Home the home folder as the process sees them.
	Drive, Home string
	Unisolated  bool
	// Program is the file of the server's program, which an unisolated process may execute wherever it is.
	Program string `json:",omitempty"`
}

// A refusal is the report of a process that cannot run its program.
type refusal struct {
	// Invalid is true if the spec is the reason.
	Invalid bool
	Message string
}

// A socket sends and receives packets with files. Several goroutines may send, one may receive.
type socket struct{ *net.UnixConn }

// newSocketPair returns the server's end of a pair of connected sockets and the file of the other end.
func newSocketPair(kind int) (socket, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket{}, nil, os.NewSyscallError("socketpair", err)
	}
	own, other := os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "socket")
	s, err := openSocket(own)
	if err != nil {
		_ = other.Close()
	}
	return s, other, err
}

// openSocket returns a socket that duplicates a file, and closes the file.
func openSocket(file *os.File) (socket, error) {
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return socket{}, err
	}
	unixConn, is := c.(*net.UnixConn)
	if !is {
		_ = c.Close()
		return socket{}, errors.New("the file is not a Unix socket")
	}
	return socket{unixConn}, nil
}

// send sends a message as one packet.
func (s socket) send(message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxPacket {
		return fmt.Errorf("a message of %d bytes is too long", len(text))
	}
	var fds []int
	for _, file := range files {
		fd, err := descriptor(file)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = s.WriteMsgUnix(text, rights, nil)
	return err
}

// descriptor returns the number of a file. Unlike Fd it leaves the file as it is: with a deadline and able to be closed while
// it is read.
func descriptor(file *os.File) (number int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(fd uintptr) { number = int(fd) })
	return number, err
}

// receive receives one packet into message, and its files. It returns io.EOF if the other end is closed.
func (s socket) receive(message any) ([]*os.File, error) {
	text, files, _, err := s.receivePacket()
	if err == nil && message != nil {
		err = json.Unmarshal(text, message)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// receivePacket receives one packet, with its files and the process id of its sender, which is 0 if the socket does not ask for
// it.
func (s socket) receivePacket() ([]byte, []*os.File, int, error) {
	text, oob := make([]byte, maxPacket+1), make([]byte, unix.CmsgSpace(4*maxFiles)+unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, flags, _, err := s.ReadMsgUnix(text, oob)
	if err != nil {
		return nil, nil, 0, err
	}
	files, pid, err := parseControl(oob[:oobn])
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case n > maxPacket || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message is too long")
	}
	if err != nil {
		closeAll(files)
		return nil, nil, 0, err
	}
	return text[:n], files, pid, nil
}

func parseControl(oob []byte) (files []*os.File, pid int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range messages {
		switch m.Header.Type {
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return files, 0, err
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "received"))
			}
		case unix.SCM_CREDENTIALS:
			sender, err := unix.ParseUnixCredentials(&m)
			if err != nil {
				return files, 0, err
			}
			pid = int(sender.Pid)
		}
	}
	return files, pid, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

// sendLong sends a message of up to maxSpec bytes on a stream.
func sendLong(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxSpec {
		return fmt.Errorf("a message of %d bytes is too long", len(text))
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// receiveLong receives a message that sendLong has sent.
func receiveLong(r io.Reader, message any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxSpec {
		return fmt.Errorf("a message of %d bytes is too long", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, message)
}
