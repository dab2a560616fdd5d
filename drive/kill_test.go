package drive_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
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

var (
	seed  = flag.Uint64("seed", 1, "seed of the random choices of TestKill")
	kills = flag.Int("kills", 12, "number of times that TestKill kills the process")
)

// TestKill runs a child process with concurrent writers and kills it at a random command, repeatedly on one drive. After each
// recovery the disk must be equal to the result of replaying all rows.
func TestKill(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	for round := range *kills {
		runAndKill(t, dir, activity, round)
		drives := open(t, dir, activity)
		if err := drives.Recover(t.Context(), workspace); err != nil {
			t.Fatal(err)
		}
		if intents := activity.Intents(); len(intents) > 0 {
			t.Fatalf("round %d: %d intents are open", round, len(intents))
		}
		if got, want := snapshot(t, dir), replay(t, activity.Rows()); !maps.Equal(got, want) {
			t.Fatalf("round %d: the disk has %v, want %v from the rows", round, got, want)
		}
		if err := drives.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows", len(activity.Rows()))
}

// runAndKill starts a child and kills it at a random command, before or after the command takes effect.
func runAndKill(t *testing.T, dir string, activity *drivetest.Activity, round int) {
	t.Helper()
	server := httptest.NewServer(serveActivity(activity))
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillChild$")
	child.Env = append(os.Environ(), "KILL_DIR="+dir, "KILL_URL="+server.URL, fmt.Sprint("KILL_ROUND=", round), fmt.Sprint("KILL_SEED=", *seed))
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	random := rand.New(rand.NewPCG(*seed, uint64(round)))
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
	// Commands of the dead process that are still being served take effect before the next process starts.
	server.Close()
	activity.Fail(nil)
	mu.Lock()
	defer mu.Unlock()
	if left > 0 {
		t.Fatalf("the child ended by itself: %s", out.String())
	}
}

// serveActivity serves the activity to the child process; see remote.
func serveActivity(activity *drivetest.Activity) http.Handler {
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

// remote is an Asker that sends commands to the activity in the parent process, at a URL.
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

// TestKillChild is the main function of the child process of TestKill.
func TestKillChild(t *testing.T) {
	if os.Getenv("KILL_DIR") == "" {
		return
	}
	drives, err := drive.New(drive.Options{Dir: os.Getenv("KILL_DIR"), Asker: remote(os.Getenv("KILL_URL"))})
	if err != nil {
		t.Fatal(err)
	}
	if err := drives.Provision(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	d := openDrive(t, drives)
	var writers sync.WaitGroup
	for w := range 6 {
		writers.Go(func() {
			seed, _ := strconv.ParseUint(os.Getenv("KILL_SEED"), 10, 64)
			round, _ := strconv.ParseUint(os.Getenv("KILL_ROUND"), 10, 64)
			random := rand.New(rand.NewPCG(seed, round<<8|uint64(w)))
			for n := 0; ; n++ {
				randomChange(t.Context(), random, d, fmt.Sprintf("%s-%d-%d", os.Getenv("KILL_ROUND"), w, n))
			}
		})
	}
	writers.Wait()
}

var paths = []string{"a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", "f"}

// randomChange makes a random change. Most changes are refused, because there are few paths. Files contain the name of their
// last author.
func randomChange(ctx context.Context, random *rand.Rand, d *drive.Drive, author string) {
	change := drive.Change{Author: &activityv1.Author{Actor: author}}
	path, other := paths[random.IntN(len(paths))], paths[random.IntN(len(paths))]
	switch random.IntN(6) {
	case 0, 1, 2:
		d.Put(ctx, path, drive.Upload{Body: strings.NewReader(author), Size: -1}, change)
	case 3:
		d.MakeFolder(ctx, path, change)
	case 4:
		d.Move(ctx, path, other, true, change)
	case 5:
		d.Remove(ctx, path, change)
	}
}

// replay returns the content of a drive after the operations of the rows, as snapshot does.
func replay(t *testing.T, rows []*activityv1.Operation) map[string]string {
	t.Helper()
	disk := map[string]string{}
	remove := func(path string) map[string]string {
		removed := map[string]string{}
		for name, content := range disk {
			if entity.Within(name, path) {
				removed[strings.TrimPrefix(name, path)] = content
				delete(disk, name)
			}
		}
		return removed
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
			if gone := len(remove(op.GetPath())); op.GetCount() > 0 && uint64(gone) != op.GetCount() {
				t.Errorf("row %d counts %d deleted entries, want %d", seq+1, op.GetCount(), gone)
			}
		case activityv1.Kind_KIND_RENAME:
			moved := remove(op.GetFromPath())
			remove(op.GetPath())
			for rest, content := range moved {
				disk[op.GetPath()+rest] = content
			}
		}
	}
	return disk
}
