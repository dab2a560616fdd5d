package bench

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// backupBytes returns the size of all files of the benchmark of backups; a third of it is on each drive.
func backupBytes(b *testing.B) int64 {
	text := os.Getenv("BENCH_BACKUP_BYTES")
	if text == "" {
		return 384 << 20
	}
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 64<<20 {
		b.Fatalf("BENCH_BACKUP_BYTES=%s is not a number of at least %d", text, 64<<20)
	}
	return size
}

// BenchmarkBackup backs up, verifies and restores drives, beside a bare loop that packs and unpacks the same files with the same
// compression and hash, and neither verifies nor records anything. The restore includes the verification of the whole backup before
// the drive changes. The memory is the growth of the resident memory of the process at its peak.
func BenchmarkBackup(b *testing.B) {
	size := backupBytes(b) / 3
	for name, fill := range map[string]func(dir string, size int64) error{"sparse": fillSparse, "many-small": fillSmall, "few-large": fillLarge} {
		b.Run(name, func(b *testing.B) {
			d := newBackedDrive(b, size, fill)
			rounds := 3
			if size > 1<<30 {
				rounds = 1
			}
			for b.Loop() {
				d.measure(rounds)
			}
		})
	}
}

// backedDrive is a node with one workspace. The drive of the workspace has files.
type backedDrive struct {
	*testing.B
	*node.Node
	dir   string
	files string
	size  int64
	tasks int
}

const backedWorkspace = "ws_bench"

func newBackedDrive(b *testing.B, size int64, fill func(dir string, size int64) error) *backedDrive {
	d := &backedDrive{B: b, dir: Disk(b), size: size}
	d.files = filepath.Join(d.dir, "drives", backedWorkspace, "files")
	n, err := node.Start(context.Background(), node.Options{Dir: d.dir})
	if err != nil {
		b.Fatal(err)
	}
	d.Node = n
	b.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	d.ask(entity.KindWorkspace, &workspacev1.CreateWorkspace{Slug: "bench", Name: "Bench", CreatorId: "usr_1"})
	d.await(func(s *computerv1.Computer) bool { return s.GetStatus() == computerv1.Status_STATUS_ACTIVE })
	if err := fill(d.files, size); err != nil {
		b.Fatal(err)
	}
	return d
}

func (d *backedDrive) ask(kind string, m proto.Message) proto.Message {
	d.Helper()
	reply, err := d.Router.Ask(context.Background(), entity.Command{Kind: kind, Identity: backedWorkspace, Principal: entity.Platform(), Message: m})
	if err != nil {
		d.Fatal(err)
	}
	return reply
}

// await waits until the computer is in a state.
func (d *backedDrive) await(holds func(*computerv1.Computer) bool) *computerv1.Computer {
	d.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		if s := d.ask(entity.KindComputer, &computerv1.DescribeComputer{}).(*computerv1.Computer); holds(s) {
			return s
		}
		<-ticker.C
	}
}

// run runs a task of the computer and returns its duration.
func (d *backedDrive) run(command func(taskID string) computerv1.Command) time.Duration {
	d.Helper()
	d.tasks++
	began := time.Now()
	d.ask(entity.KindComputer, command(fmt.Sprint("tsk_", d.tasks)))
	s := d.await(func(s *computerv1.Computer) bool { return s.GetTask() == nil })
	if s.GetFailed() != nil {
		d.Fatal(s.GetFailed())
	}
	return time.Since(began)
}

// measure reports the medians of some rounds.
func (d *backedDrive) measure(rounds int) {
	d.Helper()
	values := map[string][]float64{}
	note := func(name string, value float64) { values[name] = append(values[name], value) }
	for range rounds {
		pack, unpack := d.bare()
		backup := fmt.Sprint("bkp_", d.tasks)
		resident := resetPeak(d)
		took := d.run(func(id string) computerv1.Command { return &computerv1.BackUp{TaskId: id, BackupId: backup} })
		note("backup-rate/bare", pack.Seconds()/took.Seconds())
		note("backup-MB/s", float64(d.size)/1e6/took.Seconds())
		took = d.run(func(id string) computerv1.Command { return &computerv1.VerifyBackup{TaskId: id, BackupId: backup} })
		note("verify-MB/s", float64(d.size)/1e6/took.Seconds())
		took = d.run(func(id string) computerv1.Command { return &computerv1.Restore{TaskId: id, BackupId: backup} })
		note("restore-rate/bare", unpack.Seconds()/took.Seconds())
		note("restore-MB/s", float64(d.size)/1e6/took.Seconds())
		note("peak-MB", float64(memoryStatus(d, "VmHWM")-resident)/1e6)
		if err := os.RemoveAll(filepath.Join(d.dir, "backups", backedWorkspace)); err != nil {
			d.Fatal(err)
		}
	}
	for name, all := range values {
		slices.Sort(all)
		d.ReportMetric(all[len(all)/2], name)
	}
	d.ReportMetric(0, "ns/op")
}

// resetPeak resets the peak of the resident memory and returns the resident memory, in bytes.
func resetPeak(b testing.TB) int64 {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
	return memoryStatus(b, "VmRSS")
}

// memoryStatus returns a value of /proc/self/status in bytes.
func memoryStatus(b testing.TB, name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		b.Fatalf("/proc/self/status has no %s", name)
	}
	kilobytes, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kilobytes << 10
}

// bare packs the files into an archive and unpacks it, and returns both durations.
func (d *backedDrive) bare() (pack, unpack time.Duration) {
	d.Helper()
	scratch, err := os.MkdirTemp(d.dir, "bare-*")
	if err != nil {
		d.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	object := filepath.Join(scratch, "archive")
	began := time.Now()
	if err := packBare(d.files, object); err != nil {
		d.Fatal(err)
	}
	pack = time.Since(began)
	began = time.Now()
	if err := unpackBare(object, filepath.Join(scratch, "files")); err != nil {
		d.Fatal(err)
	}
	return pack, time.Since(began)
}

func packBare(dir, object string) error {
	file, err := os.Create(object)
	if err != nil {
		return err
	}
	defer file.Close()
	compressor, err := zstd.NewWriter(io.MultiWriter(file, sha256.New()), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	out := tar.NewWriter(compressor)
	return errors.Join(out.AddFS(os.DirFS(dir)), out.Close(), compressor.Close(), file.Sync())
}

func unpackBare(object, dir string) error {
	file, err := os.Open(object)
	if err != nil {
		return err
	}
	defer file.Close()
	decompressed, err := zstd.NewReader(io.TeeReader(file, sha256.New()), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer decompressed.Close()
	for in := tar.NewReader(decompressed); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return syncTree(dir)
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(filepath.Join(dir, h.Name), 0o700)
		} else {
			err = unpackBareFile(filepath.Join(dir, h.Name), in)
		}
		if err != nil {
			return err
		}
	}
}

func unpackBareFile(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// fillText writes size bytes of text, which compresses to three quarters.
func fillText(to io.Writer, size int64, source *rand.ChaCha8) error {
	buffer := make([]byte, 1<<20)
	for size > 0 {
		part := buffer[:min(size, int64(len(buffer)))]
		source.Read(part)
		for i := range part {
			part[i] = ' ' + part[i]&63
		}
		n, err := to.Write(part)
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// fillSparse makes one file. One part in 64 of the file is data.
func fillSparse(dir string, size int64) error {
	file, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		return err
	}
	defer file.Close()
	source := rand.NewChaCha8([32]byte{})
	for at := int64(0); at+64<<10 < size; at += 4 << 20 {
		if err := fillText(io.NewOffsetWriter(file, at), 64<<10, source); err != nil {
			return err
		}
	}
	return errors.Join(file.Truncate(size), file.Sync())
}

// fillSmall makes files of 16 KiB, 256 in each folder.
func fillSmall(dir string, size int64) error {
	source := rand.NewChaCha8([32]byte{})
	for i := range size / (16 << 10) {
		path := filepath.Join(dir, strconv.FormatInt(i/256, 10), strconv.FormatInt(i%256, 10))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		var text strings.Builder
		if err := errors.Join(fillText(&text, 16<<10, source), os.WriteFile(path, []byte(text.String()), 0o600)); err != nil {
			return err
		}
	}
	return syncTree(dir)
}

// fillLarge makes four files.
func fillLarge(dir string, size int64) error {
	source := rand.NewChaCha8([32]byte{})
	for i := range int64(4) {
		file, err := os.Create(filepath.Join(dir, fmt.Sprint("large", i)))
		if err != nil {
			return err
		}
		if err := errors.Join(fillText(file, size/4, source), file.Sync(), file.Close()); err != nil {
			return err
		}
	}
	return nil
}
