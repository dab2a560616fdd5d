package drive_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestKill lets a process of many writers run and kills it at a random command, again and again on one drive. After each
// recovery the disk is what the rows, played from the first on, say that it is.
func TestKill(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	dir, activity := t.TempDir(), &drivetest.Activity{}
	for round := range rounds {
		killed(t, dir, activity, round)
		drives := open(t, dir, activity)
		if err := drives.Recover(t.Context(), workspace); err != nil {
			t.Fatal(err)
		}
		if intents := activity.Intents(); len(intents) > 0 {
			t.Fatalf("round %d: %d intents are open", round, len(intents))
		}
		if got, want := snapshot(t, dir), played(t, activity.Rows()); !maps.Equal(got, want) {
			t.Fatalf("round %d: the disk has %v, the rows say %v", round, got, want)
		}
		if err := drives.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows", len(activity.Rows()))
}

// killed runs a child until a random command of its, and kills it before or after that takes effect.
func killed(t *testing.T, dir string, activity *drivetest.Activity, round int) {
	t.Helper()
	server := httptest.NewServer(asked(activity))
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillChild$")
	child.Env = append(os.Environ(), "KILL_DIR="+dir, "KILL_URL="+server.URL, fmt.Sprint("KILL_ROUND=", round))
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	random := rand.New(rand.NewPCG(1, uint64(round)))
	var mu sync.Mutex
	left, after := 20+random.IntN(200), random.IntN(2) == 0
	activity.Fail(func(_ proto.Message, isAfter bool) error {
		mu.Lock()
		defer mu.Unlock()
		if isAfter == after {
			if left--; left == 0 {
				child.Process.Kill()
			}
		}
		return nil
	})
	mu.Lock()
	err := child.Start()
	mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	child.Wait()
	// What the dead process still had under way takes effect before the next one asks.
	server.Close()
	activity.Fail(nil)
	mu.Lock()
	defer mu.Unlock()
	if left > 0 {
		t.Fatalf("the child ended by itself: %s", out.String())
	}
}

func asked(activity *drivetest.Activity) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		message, err := unpack(content)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply, err := activity.Ask(context.WithoutCancel(r.Context()), entity.Command{
			Kind: entity.KindActivity, Identity: workspace, Principal: entity.Platform(), Message: message,
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Write(pack(reply))
	})
}

func pack(message proto.Message) []byte {
	packed, err := anypb.New(message)
	if err != nil {
		panic(err)
	}
	content, err := proto.Marshal(packed)
	if err != nil {
		panic(err)
	}
	return content
}

func unpack(content []byte) (proto.Message, error) {
	var packed anypb.Any
	if err := proto.Unmarshal(content, &packed); err != nil {
		return nil, err
	}
	return packed.UnmarshalNew()
}

// remote asks the activity in the parent process.
type remote string

func (url remote) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	request, err := http.NewRequestWithContext(ctx, "POST", string(url), bytes.NewReader(pack(c.Message)))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, drivetest.ErrUnknown
	}
	return unpack(content)
}

// TestKillChild is the process that is killed.
func TestKillChild(t *testing.T) {
	if os.Getenv("KILL_DIR") == "" {
		t.Skip("runs as a child of TestKill")
	}
	drives, err := drive.New(drive.Options{Dir: os.Getenv("KILL_DIR"), Asker: remote(os.Getenv("KILL_URL"))})
	if err != nil {
		t.Fatal(err)
	}
	if err := drives.Provision(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	d := of(t, drives)
	var writers sync.WaitGroup
	for w := range 6 {
		writers.Go(func() {
			for n := 0; ; n++ {
				disturb(t.Context(), d, fmt.Sprintf("%s-%d-%d", os.Getenv("KILL_ROUND"), w, n))
			}
		})
	}
	writers.Wait()
}

var places = []string{"a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "f"}

// disturb does anything; most of it is refused, as the places are few. The author's name is the content.
func disturb(ctx context.Context, d *drive.Drive, who string) {
	change := drive.Change{Author: &activityv1.Author{Actor: who}}
	path, other := places[rand.IntN(len(places))], places[rand.IntN(len(places))]
	switch rand.IntN(6) {
	case 0, 1, 2:
		d.Put(ctx, path, drive.Upload{Body: strings.NewReader(who), Size: -1}, change)
	case 3:
		d.MakeFolder(ctx, path, change)
	case 4:
		d.Move(ctx, path, other, true, change)
	case 5:
		d.Remove(ctx, path, change)
	}
}

// played carries out the rows on an empty drive.
func played(t *testing.T, rows []*activityv1.Operation) map[string]string {
	t.Helper()
	disk := map[string]string{}
	take := func(path string) map[string]string {
		taken := map[string]string{}
		for name, content := range disk {
			if drive.Within(name, path) {
				taken[strings.TrimPrefix(name, path)] = content
				delete(disk, name)
			}
		}
		return taken
	}
	for seq, op := range rows {
		content := op.GetAuthor().GetActor()
		if op.GetEntryKind() == activityv1.EntryKind_ENTRY_KIND_FOLDER {
			content = "folder"
		}
		switch op.GetKind() {
		case activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_WRITE:
			disk[op.GetPath()] = content
		case activityv1.Kind_KIND_DELETE:
			if gone := len(take(op.GetPath())); op.GetCount() > 0 && uint64(gone) != op.GetCount() {
				t.Errorf("row %d tells of %d entries, there were %d", seq+1, op.GetCount(), gone)
			}
		case activityv1.Kind_KIND_RENAME:
			moved := take(op.GetFromPath())
			take(op.GetPath())
			for rest, content := range moved {
				disk[op.GetPath()+rest] = content
			}
		}
	}
	return disk
}
