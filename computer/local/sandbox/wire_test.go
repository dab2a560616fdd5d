package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func openPair(t *testing.T) (a, b socket) {
	t.Helper()
	a, file, err := newSocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = openSocket(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

func TestSocketPassesFiles(t *testing.T) {
	a, b := openPair(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if err := a.send(request{Op: opStart, Process: 7}, write); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	var got request
	files, err := b.receive(&got)
	if err != nil || got.Op != opStart || got.Process != 7 || len(files) != 1 {
		t.Fatalf("got %+v, %v, %v", got, files, err)
	}
	flags, err := unix.FcntlInt(files[0].Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the file is passed to programs: %x, %v", flags, err)
	}
	closeAll(files)
	if content, err := io.ReadAll(read); err != nil || len(content) > 0 {
		t.Errorf("got %q, %v", content, err)
	}
	_ = a.Close()
	if _, err := b.receive(&got); !errors.Is(err, io.EOF) {
		t.Errorf("receive returned %v after the other end was closed", err)
	}
}

func TestSocketRefusesLongAndBrokenMessages(t *testing.T) {
	a, b := openPair(t)
	if err := a.send(event{Error: strings.Repeat("x", maxPacket)}); err == nil {
		t.Error("send returned no error for a long message")
	}
	for _, packet := range []string{strings.Repeat("x", maxPacket+1), "{", "[]", `{"Process":-1}`} {
		if _, err := a.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.receive(&request{}); err == nil {
			t.Errorf("receive returned no error for %.20q", packet)
		}
	}
	too := append([]byte{0xff, 0xff, 0xff, 0xff}, "{}"...)
	if err := receiveLong(bytes.NewReader(too), &spec{}); err == nil {
		t.Error("receiveLong returned no error for a message that says it is 4 GB long")
	}
	if err := sendLong(io.Discard, spec{Cwd: strings.Repeat("x", maxSpec)}); err == nil {
		t.Error("sendLong returned no error for a long message")
	}
}

func TestLongMessages(t *testing.T) {
	var b bytes.Buffer
	want := spec{Version: wireVersion, Argv: []string{"echo", strings.Repeat("x", 1<<20)}, Terminal: &unix.Winsize{Row: 24, Col: 80}}
	if err := sendLong(&b, want); err != nil {
		t.Fatal(err)
	}
	var got spec
	if err := receiveLong(&b, &got); err != nil || got.Argv[1] != want.Argv[1] || *got.Terminal != *want.Terminal {
		t.Errorf("got %v", err)
	}
	if err := receiveLong(&b, &got); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}
