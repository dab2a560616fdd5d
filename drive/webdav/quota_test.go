package webdav_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/tests/testmachine"
	"github.com/atelier-run/atelier/volume"
)

// available returns the value of the property quota-available-bytes of the root.
func (s *site) available() uint64 {
	s.t.Helper()
	const body = `<propfind xmlns="DAV:"><prop><quota-available-bytes/><quota-used-bytes/></prop></propfind>`
	answer := s.do("PROPFIND", "/", body, "Depth: 0").is(207)
	found := regexp.MustCompile(`<D:quota-available-bytes>(\d+)<`).FindStringSubmatch(answer.body)
	if found == nil {
		s.t.Fatalf("no property: %s", answer.body)
	}
	n, err := strconv.ParseUint(found[1], 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// putChunked uploads a body without announcing its length, and returns the status.
func (s *site) putChunked(path, body string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), "PUT", s.url(path), io.MultiReader(strings.NewReader(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.server.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode
}

func (s *site) isOverQuota() bool {
	refusal, is := errors.AsType[*entity.Error](s.drives.CheckSpace(s.t.Context(), workspace, nil))
	return is && refusal.Code == quota.Full
}

func TestQuotaOfBytes(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), activity: newActivity(), quota: quota.Limit{Bytes: 1 << 20}}
	s.start()
	content := strings.Repeat("x", 600<<10)
	if got := s.available(); got > 1<<20 || got < 900<<10 {
		t.Errorf("%d bytes are available on an empty drive", got)
	}
	s.do("PUT", "/a", content).is(201)
	if got := s.available(); got > 424<<10 || got < 300<<10 {
		t.Errorf("%d bytes are available", got)
	}
	s.do("PUT", "/b", content).is(507).says("quota of 1048576 bytes")
	if status := s.putChunked("/b", content); status != 507 {
		t.Errorf("an upload of unknown length: %d", status)
	}
	s.do("PUT", "/a", content).is(507) // the old content is there until the new one is
	s.do("COPY", "/a", "", "Destination: "+prefix+"/b").is(507)
	s.do("PUT", "/small", "x").is(201)
	s.do("MOVE", "/a", "", "Destination: "+prefix+"/b").is(201)
	if len(s.staged()) > 0 {
		t.Errorf("staged %v", s.staged())
	}
	s.do("DELETE", "/b", "").is(204)
	s.eventually(func() bool { return s.putChunked("/c", content) == 201 })
	// A process exceeds the quota, and deletes its file.
	s.eventually(func() bool { return !s.isOverQuota() })
	if err := os.WriteFile(s.files("big"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually(s.isOverQuota)
	s.do("PUT", "/small", "x").is(507)
	s.do("MKCOL", "/folder", "").is(507)
	if got := s.available(); got != 0 {
		t.Errorf("%d bytes are available on a full drive", got)
	}
	if used, total, err := s.drives.Usage(workspace); err != nil || total != 1<<20 || used < total {
		t.Errorf("%d of %d bytes are used, %v", used, total, err)
	}
	if err := os.Remove(s.files("big")); err != nil {
		t.Fatal(err)
	}
	s.eventually(func() bool { return !s.isOverQuota() })
	s.do("PUT", "/small", "x").is(204)
}

func TestQuotaOfFiles(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), activity: newActivity(), quota: quota.Limit{Files: 20}}
	s.start()
	made := 0
	for ; made < 30 && s.do("MKCOL", fmt.Sprintf("/%d", made), "").status == 201; made++ {
	}
	if made < 10 || made > 20 {
		t.Errorf("%d folders were made", made)
	}
	s.do("PUT", "/a", "").is(507).says("quota of 20 files")
	s.do("COPY", "/0", "", "Destination: "+prefix+"/b").is(507)
	s.do("DELETE", "/0", "").is(204)
	s.eventually(func() bool { return s.do("PUT", "/a", "").status == 201 })
}

// TestSparseFile verifies that the quota counts the space that a file and its copy occupy, and not their length.
func TestSparseFile(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), activity: newActivity(), quota: quota.Limit{Bytes: 1 << 20}}
	s.start()
	if err := errors.Join(os.WriteFile(s.files("sparse"), nil, 0o600), os.Truncate(s.files("sparse"), 1<<40)); err != nil {
		t.Fatal(err)
	}
	if s.isOverQuota() {
		t.Error("a sparse file counts with its length")
	}
	s.do("COPY", "/sparse", "", "Destination: "+prefix+"/b").is(201)
	if s.isOverQuota() {
		t.Error("the copy of a sparse file counts with its length")
	}
	file, err := os.OpenFile(s.files("sparse"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(make([]byte, 900<<10), 1<<30); err != nil {
		t.Fatal(err)
	}
	s.do("COPY", "/sparse", "", "Destination: "+prefix+"/c").is(507)
}

// TestReserve verifies that drives leave space on the disk, with and without a quota.
func TestReserve(t *testing.T) {
	for _, limit := range []quota.Limit{{}, {Bytes: 1 << 30}} {
		s := &site{t: t, dir: t.TempDir(), activity: newActivity(), quota: limit, reserve: quota.Usage{Bytes: 1 << 62}}
		s.start()
		s.do("PUT", "/a", "x").is(507).says("the disk of the server")
		s.do("MKCOL", "/a", "").is(507)
		if got := s.available(); got != 0 || !s.isOverQuota() {
			t.Errorf("%d bytes are available, and processes may run: %v", got, !s.isOverQuota())
		}
	}
}

// TestReserveOfFiles fills a file system of 100 inodes in every way that makes files. Drives leave 30 inodes free: no request
// succeeds beyond the reserve, existing files can be read, changed in their place and deleted, and a deletion makes room.
func TestReserveOfFiles(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), activity: newActivity(), reserve: quota.Usage{Files: 30}}
	testmachine.Mount(t, s.dir, "size=64m,nr_inodes=100")
	s.start()
	made := 0
	for ; made < 100 && s.do("PUT", fmt.Sprintf("/%d", made), "").status == 201; made++ {
	}
	for ; made < 100 && s.do("MKCOL", fmt.Sprintf("/%d", made), "").status == 201; made++ {
	}
	if made < 50 || made > 70 {
		t.Errorf("%d files and folders were made", made)
	}
	if free, err := volume.Measure(s.dir); err != nil || free.FreeFiles < 30 {
		t.Errorf("%d inodes are free, %v", free.FreeFiles, err)
	}
	s.do("PUT", "/a", "").is(507).says("too few further files")
	s.do("MKCOL", "/a", "").is(507)
	s.do("COPY", "/0", "", "Destination: "+prefix+"/b").is(507)
	s.do("GET", "/0", "").is(200)
	s.do("MOVE", "/0", "", "Destination: "+prefix+"/moved").is(201)
	s.do("DELETE", "/1", "").is(204)
	s.do("DELETE", "/2", "").is(204)
	s.eventually(func() bool { return s.do("PUT", "/a", "").status == 201 })
	if s.isOverQuota() {
		t.Error("processes may not run although the reserve is free")
	}
	for i := range 10 { // as a process does
		if err := os.WriteFile(s.files(fmt.Sprint("process", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !s.isOverQuota() {
		t.Error("processes may go on although they have made files of the reserve")
	}
}

// TestNoRoomInTheJournal refuses operations that are recorded and could not be refused later: reads and processes.
func TestNoRoomInTheJournal(t *testing.T) {
	isFull := false
	s := &site{t: t, dir: t.TempDir(), activity: newActivity(), room: func(string) error {
		if isFull {
			return entity.Errorf(entity.InsufficientStorage, "there is no room")
		}
		return nil
	}}
	s.start()
	s.do("PUT", "/a", "content").is(201)
	s.do("GET", "/a", "").is(200)
	if s.isOverQuota() {
		t.Error("no process may run")
	}
	isFull = true
	s.do("GET", "/a", "").is(507).says("there is no room")
	s.do("HEAD", "/a", "").is(200)
	if !s.isOverQuota() {
		t.Error("processes may run")
	}
	s.do("DELETE", "/a", "").is(204)
}
