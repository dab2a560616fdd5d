package domains

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/certificates"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// newFiles returns the files of entities for a member with a key of equal bytes.
func newFiles(t testing.TB, asker entity.Asker, key byte) *files {
	t.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte{key}, KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &files{asker: asker, sealer: sealer, clock: time.Now, log: slog.New(slog.DiscardHandler)}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStorage checks the contract of certmagic.Storage.
func TestStorage(t *testing.T) {
	ctx := t.Context()
	s := newFiles(t, domainstest.NewEntities(time.Now), 1).begin()
	all := []string{"a/b/c", "a/b/d", "a/e", "a/b", "ab/c", "f"}
	for _, name := range all {
		check(t, s.Store(ctx, name, []byte("content of "+name)))
	}
	for _, name := range all {
		content, err := s.Load(ctx, name)
		info, statErr := s.Stat(ctx, name)
		if string(content) != "content of "+name || err != nil || statErr != nil || !info.IsTerminal || info.Size != int64(len(content)) || info.Modified.IsZero() {
			t.Errorf("%s: %q, %v, %+v, %v", name, content, err, info, statErr)
		}
	}
	for _, name := range []string{"a/b/cc", "a/b/", "a/e/x", "missing", "a/b/c/d"} {
		_, err := s.Load(ctx, name)
		_, statErr := s.Stat(ctx, name)
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(statErr, fs.ErrNotExist) || s.Exists(ctx, name) {
			t.Errorf("%s: %v, %v", name, err, statErr)
		}
	}
	if info, err := s.Stat(ctx, "a"); err != nil || info.IsTerminal {
		t.Errorf("a folder: %+v, %v", info, err)
	}
	for _, test := range []struct {
		folder    string
		recursive bool
		want      []string
	}{
		{"a", false, []string{"a/b", "a/b", "a/e"}}, {"a", true, []string{"a/b", "a/b/c", "a/b/d", "a/e"}},
		{"", false, []string{"a", "ab", "f"}}, {"a/b", false, []string{"a/b/c", "a/b/d"}},
	} {
		if got, err := s.List(ctx, test.folder, test.recursive); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: %v, %v", test.folder, got, err)
		}
	}
	if _, err := s.List(ctx, "missing", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	check(t, s.Delete(ctx, "a/b"))
	check(t, s.Delete(ctx, "missing"))
	if left, _ := s.List(ctx, "", true); !slices.Equal(left, []string{"a/e", "ab/c", "f"}) {
		t.Errorf("left after a deletion: %v", left)
	}
	check(t, s.Store(ctx, "f", []byte("replaced")))
	if content, err := s.Load(ctx, "f"); string(content) != "replaced" || err != nil {
		t.Errorf("a replaced file: %q, %v", content, err)
	}
}

func TestFilesAreEncrypted(t *testing.T) {
	ctx := t.Context()
	entities := domainstest.NewEntities(time.Now)
	mine := newFiles(t, entities, 1)
	secret := []byte("-----BEGIN PRIVATE KEY-----")
	check(t, mine.begin().Store(ctx, "a", secret))
	if bytes.Contains(entities.Stored(), secret) || bytes.Contains(entities.Stored(), secret[5:15]) {
		t.Error("the content is stored in plain")
	}
	if _, _, err := newFiles(t, entities, 2).load(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with another key: %v", err)
	}
	// The content of one file does not decrypt under the name of another.
	file, _, err := mine.load(ctx, "a")
	check(t, err)
	moved := proto.CloneOf(file)
	moved.Name = "b"
	damaged := proto.CloneOf(file)
	damaged.Name, damaged.Sealed = "c", damaged.GetSealed()[:5]
	check(t, mine.write(ctx, nil, moved, damaged))
	for _, name := range []string{"b", "c"} {
		if _, _, err := mine.load(ctx, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("file %s: %v", name, err)
		}
	}
}

// TestStagedFiles checks that the files of a certificate are stored together when the lock is released.
func TestStagedFiles(t *testing.T) {
	ctx := t.Context()
	entities := domainstest.NewEntities(time.Now)
	s := newFiles(t, entities, 1).begin()
	check(t, s.Lock(ctx, "name"))
	check(t, s.Store(ctx, "certificates/ca/x/x.key", []byte("key")))
	check(t, s.Store(ctx, "certificates/ca/x/x.crt", []byte("old")))
	check(t, s.Store(ctx, "certificates/ca/x/x.crt", []byte("crt")))
	check(t, s.Store(ctx, "challenges/x", []byte("token")))
	content, err := s.Load(ctx, "certificates/ca/x/x.crt")
	if string(content) != "crt" || err != nil || !s.Exists(ctx, "certificates/ca/x/x.key") {
		t.Errorf("the session reads %q, %v", content, err)
	}
	if names := entities.Names(); !slices.Equal(names, []string{"challenges/x"}) {
		t.Errorf("stored before the lock is released: %v", names)
	}
	entities.Fail(func(m proto.Message) error {
		if files, ok := m.(*certificatesv1.StoreFiles); ok && len(files.GetFiles()) != 2 {
			return fmt.Errorf("%d files are stored together", len(files.GetFiles()))
		}
		return nil
	})
	check(t, s.Unlock(ctx, "name"))
	check(t, s.finish())
	if names := entities.Names(); len(names) != 3 {
		t.Errorf("stored: %v", names)
	}
}

// delayed fails the commands of a member while it is cut off.
type delayed struct {
	entity.Asker
	cut atomic.Bool
}

func (d *delayed) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if d.cut.Load() {
		return nil, entity.Errorf(entity.Unavailable, "cut off")
	}
	return d.Asker.Ask(ctx, c)
}

func TestLocks(t *testing.T) {
	t.Run("renewed_while_held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			entities := domainstest.NewEntities(time.Now)
			a, b := newFiles(t, entities, 1).begin(), newFiles(t, entities, 1).begin()
			check(t, a.Lock(t.Context(), "name"))
			limited, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := b.Lock(limited, "name"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the lock of another member: %v", err)
			}
			check(t, a.Store(t.Context(), "x", nil))
			acquired := make(chan error)
			go func() { acquired <- b.Lock(t.Context(), "name") }()
			synctest.Wait()
			check(t, a.Unlock(t.Context(), "name"))
			check(t, <-acquired)
			b.end(t.Context())
		})
	})
	t.Run("lost_by_a_member_that_was_cut_off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			entities := domainstest.NewEntities(time.Now)
			away := &delayed{Asker: entities}
			a, b := newFiles(t, away, 1).begin(), newFiles(t, entities, 1).begin()
			check(t, a.Lock(t.Context(), "name"))
			check(t, a.Store(t.Context(), "certificates/x.crt", []byte("of a")))
			synctest.Wait()
			away.cut.Store(true)
			check(t, b.Lock(t.Context(), "name")) // after the lease
			check(t, b.Store(t.Context(), "certificates/x.crt", []byte("of b")))
			check(t, b.Unlock(t.Context(), "name"))
			away.cut.Store(false)
			if err := a.Store(t.Context(), "y", nil); codeOf(err) != entity.Forbidden {
				t.Errorf("a change of the first holder: %v", err)
			}
			if err := a.Unlock(t.Context(), "name"); codeOf(err) != entity.Forbidden || codeOf(a.finish()) != entity.Forbidden {
				t.Errorf("the staged files of the first holder: %v, %v", err, a.finish())
			}
			if content, err := b.Load(t.Context(), "certificates/x.crt"); string(content) != "of b" || err != nil {
				t.Errorf("the file is %q, %v", content, err)
			}
			a.end(t.Context())
		})
	})
}

func codeOf(err error) entity.Code {
	var refusal *entity.Error
	if !errors.As(err, &refusal) {
		return ""
	}
	return refusal.Code
}

// TestExpiryList checks that the store lists the ends of certificates for the metrics.
func TestExpiryList(t *testing.T) {
	entities := domainstest.NewEntities(time.Now)
	f := newFiles(t, entities, 1)
	now := time.Now().Truncate(time.Second)
	for i, left := range []time.Duration{-time.Hour, time.Hour, 30 * 24 * time.Hour, 60 * 24 * time.Hour} {
		chain, _ := selfSigned(t, "x", 1, now.Add(-48*time.Hour), now.Add(left))
		check(t, f.write(t.Context(), nil, f.seal(fmt.Sprintf("certificates/%d.crt", i), chain), f.seal(fmt.Sprintf("certificates/%d.key", i), chain)))
	}
	m := newMetrics(f, func() time.Time { return now })
	if got := m.count(); got["expired"] != 1 || got["expiring"] != 1 || got["valid"] != 2 {
		t.Errorf("certificates by state: %v", got)
	}
	page, err := f.page(t.Context(), &wirev1.List{Name: certificates.ExpiryList, Limit: 10})
	if err != nil || len(page.GetRows()) != 4 {
		t.Errorf("%d rows, %v", len(page.GetRows()), err)
	}
}
