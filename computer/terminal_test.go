package computer_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

func openTerminal(t *testing.T, w *world) (*computer.Terminal, *fakeProcess) {
	t.Helper()
	terminal, err := w.fleet.OpenTerminal(t.Context(), launch)
	if err != nil {
		t.Fatal(err)
	}
	return terminal, w.host.processes[len(w.host.processes)-1]
}

func TestTerminalIsReadFromAnyPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		terminal, process := openTerminal(t, w)
		defer terminal.Attach()()
		const total = 300_000 // more than the scroll-back has
		var written strings.Builder
		for i := 0; written.Len() < total; i++ {
			line := strings.Repeat(string(rune('a'+i%26)), 1+i%700) + "\n"
			written.WriteString(line)
			if _, err := process.output.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		process.exit(computer.Exit{})
		synctest.Wait()
		_, at, err := terminal.Read(t.Context(), 0, make([]byte, 1))
		if err != nil || at != uint64(written.Len()-256<<10) {
			t.Fatalf("the scroll-back begins at %d, %v", at, err)
		}
		var read strings.Builder
		for position := at; ; {
			b := make([]byte, 777)
			n, from, err := terminal.Read(t.Context(), position, b)
			if err == io.EOF {
				break
			}
			if err != nil || from != position {
				t.Fatalf("read at %d from %d: %v", position, from, err)
			}
			read.Write(b[:n])
			position += uint64(n)
		}
		if read.String() != written.String()[at:] {
			t.Error("the scroll-back differs from the end of the output")
		}
		if _, _, err := terminal.Read(t.Context(), uint64(written.Len())+1, make([]byte, 1)); !entity.IsRefusal(err) {
			t.Errorf("a position after the end: %v", err)
		}
		if err := w.fleet.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTerminalInputWaitsForItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		terminal, process := openTerminal(t, w)
		var written strings.Builder
		for i := range 4 {
			message := strings.Repeat(string(rune('a'+i)), 60_000)
			terminal.Write(t.Context(), []byte(message)) // returns although nothing reads
			written.WriteString(message)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		terminal.Write(ctx, make([]byte, 60_000)) // beyond the limit
		if ctx.Err() == nil {
			t.Error("too much input waits")
		}
		waits := make(chan struct{})
		go func() {
			terminal.Write(t.Context(), []byte(strings.Repeat("e", 60_000)))
			close(waits)
		}()
		written.WriteString(strings.Repeat("e", 60_000))
		read := make([]byte, written.Len())
		if _, err := io.ReadFull(process.input, read); err != nil || string(read) != written.String() {
			t.Errorf("the process reads other input than was written, %v", err)
		}
		<-waits
		process.exit(computer.Exit{})
		<-terminal.Ended()
		if err := w.fleet.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTerminalBelongsToItsUser(t *testing.T) {
	w := provisioned(t)
	terminal, process := openTerminal(t, w)
	other := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_2"}
	if found, err := w.fleet.Terminal("ws_1", launch.Principal, terminal.ID); err != nil || found != terminal {
		t.Errorf("the user's own terminal: %v", err)
	}
	for name, find := range map[string]func() (*computer.Terminal, error){
		"another user":      func() (*computer.Terminal, error) { return w.fleet.Terminal("ws_1", other, terminal.ID) },
		"nobody":            func() (*computer.Terminal, error) { return w.fleet.Terminal("ws_1", &wirev1.Principal{}, terminal.ID) },
		"another workspace": func() (*computer.Terminal, error) { return w.fleet.Terminal("ws_2", launch.Principal, terminal.ID) },
		"another id":        func() (*computer.Terminal, error) { return w.fleet.Terminal("ws_1", launch.Principal, "prc_x") },
	} {
		if _, err := find(); !entity.IsRefusal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	process.exit(computer.Exit{})
	if _, err := terminal.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTerminalWithoutClientsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		terminal, _ := openTerminal(t, w)
		detach := terminal.Attach()
		time.Sleep(time.Hour)
		select {
		case <-terminal.Ended():
			t.Fatal("the terminal has ended although it has a client")
		default:
		}
		detach()
		began := time.Now()
		<-terminal.Ended()
		if after := time.Since(began); after != computer.DefaultDetachedLimit {
			t.Errorf("ended after %s without a client", after)
		}
		if _, err := w.fleet.Terminal("ws_1", launch.Principal, terminal.ID); err != nil {
			t.Errorf("a terminal that has just ended: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := w.fleet.Terminal("ws_1", launch.Principal, terminal.ID); !entity.IsRefusal(err) {
			t.Errorf("a terminal that ended a minute ago: %v", err)
		}
	})
}

func TestTerminalWithoutClientsEndsAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		terminal, process := openTerminal(t, w)
		process.endFails.Store(true)
		began := time.Now()
		<-terminal.Ended()
		if after := time.Since(began); after != 2*computer.DefaultDetachedLimit {
			t.Errorf("ended after %s", after)
		}
		if err := w.fleet.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
