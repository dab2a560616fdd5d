package bucket

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestScheduleReachesTheLargestObject checks the parts of an object of 5 TiB, the largest that S3 stores: all are within S3's
// limits, none is smaller than the previous one, and each is small in proportion to the bytes written before it.
func TestScheduleReachesTheLargestObject(t *testing.T) {
	const largest, smallestPart = 5 << 40, 5 << 20
	parts, last := 0, int64(0)
	for written := int64(0); written < largest; parts++ {
		size := defaultSchedule.next(written)
		if size < smallestPart || size > maxPartSize || size < last {
			t.Fatalf("part %d, after %d bytes, has %d bytes; the previous part has %d", parts+1, written, size, last)
		}
		if size > max(8<<20, written/1000) {
			t.Fatalf("part %d, after %d bytes, has %d bytes: too large in proportion", parts+1, written, size)
		}
		written, last = written+size, size
	}
	if parts > maxParts {
		t.Errorf("5 TiB need %d parts, want at most %d; the last part has %d bytes", parts, maxParts, last)
	}
	t.Logf("5 TiB need %d parts; the last part has %d bytes", parts, last)
}

// fakeS3 is an S3 server that stores one multipart upload in memory. It accepts parts of any size, but at most limit parts.
type fakeS3 struct {
	mu       sync.Mutex
	limit    int
	parts    map[int]string
	sizes    []int
	object   string
	complete bool
	aborted  bool
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	query := r.URL.Query()
	number, _ := strconv.Atoi(query.Get("partNumber"))
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodPost && query.Has("uploads"):
		fmt.Fprint(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	case r.Method == http.MethodGet:
		fmt.Fprint(w, `<ListMultipartUploadsResult></ListMultipartUploadsResult>`)
	case r.Method == http.MethodPut && number > f.limit:
		http.Error(w, "", http.StatusBadRequest)
	case r.Method == http.MethodPut:
		f.parts[number] = string(body)
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
	case r.Method == http.MethodDelete:
		f.aborted = true
		w.WriteHeader(http.StatusNoContent)
	case strings.Count(string(body), "<PartNumber>") != len(f.parts):
		http.Error(w, "", http.StatusBadRequest)
	default:
		for _, number := range slices.Sorted(maps.Keys(f.parts)) {
			f.object += f.parts[number]
			f.sizes = append(f.sizes, len(f.parts[number]))
		}
		f.complete = true
		fmt.Fprint(w, `<CompleteMultipartUploadResult><Bucket>backups</Bucket></CompleteMultipartUploadResult>`)
	}
}

// TestUploadWithGrowingParts stores objects that need parts larger than the first size. It limits an upload to 100 parts and
// begins with parts of 1 KiB, so that the objects stay small.
func TestUploadWithGrowingParts(t *testing.T) {
	for name, test := range map[string]struct {
		size int
		fits bool
	}{
		"parts_of_the_first_size_suffice":      {100 << 10, true},
		"larger_parts_are_needed":              {8000 << 10, true},
		"object_too_large_for_all_parts_fails": {12000 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeS3{limit: 100, parts: map[int]string{}}
			server := httptest.NewServer(fake)
			defer server.Close()
			b := connect(t, "s3://backups?region=us-east-1&endpoint="+server.URL, "k", "secret")
			b.schedule = schedule{first: 1 << 10, growth: 13, unit: 16, parts: 100}
			content := strings.Repeat("0123456789abcde", test.size/15+1)[:test.size]
			err := b.Put(t.Context(), "a", func(to io.Writer) error {
				_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{strings.NewReader(content)}, make([]byte, 700))
				return err
			})
			fake.mu.Lock()
			defer fake.mu.Unlock()
			if !test.fits {
				if err == nil || !strings.Contains(err.Error(), "too large for S3") || fake.complete || !fake.aborted {
					t.Errorf("Put returned %v; upload completed: %v, aborted: %v; want an aborted upload", err, fake.complete, fake.aborted)
				}
				return
			}
			if err != nil || fake.object != content || fake.aborted {
				t.Errorf("Put returned %v and stored %d of %d bytes in parts of %v bytes", err, len(fake.object), len(content), fake.sizes)
			}
		})
	}
}
