package webdav_test

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"strings"
	"testing"
)

// TestDigests uploads content with checksums that agree, that differ, and that are malformed.
func TestDigests(t *testing.T) {
	s := serve(t)
	const content = "the content"
	headers := func(of string) []string {
		fill := func(sum []byte) string { return base64.StdEncoding.EncodeToString(sum) }
		m, a, b, c := md5.Sum([]byte(of)), sha1.Sum([]byte(of)), sha256.Sum256([]byte(of)), sha512.Sum512([]byte(of))
		return []string{
			"Content-MD5: " + fill(m[:]), "Digest: MD5=" + fill(m[:]), "Digest: crc32c=AAAAAA==,sha=" + fill(a[:]), "Digest: SHA-256=" + fill(b[:]),
			"Digest: SHA-512=" + fill(c[:]), "Content-Digest: sha-256=:" + fill(b[:]) + ":", "Repr-Digest: unixsum=:AAAA:, sha-512=:" + fill(c[:]) + ":;p=1",
			"OC-Checksum: SHA1:" + hex.EncodeToString(a[:]), "OC-Checksum: md5:" + strings.ToUpper(hex.EncodeToString(m[:])),
			"OC-Checksum: SHA256:" + hex.EncodeToString(b[:]), fmt.Sprintf("OC-Checksum: ADLER32:%08x", adler32.Checksum([]byte(of))),
			"OC-Checksum: SHA3-256:00 SHA1:" + hex.EncodeToString(a[:]), fmt.Sprintf("OC-Checksum: Adler32:%x", adler32.Checksum([]byte(of))),
			"Digest: adler32=00000001, " + strings.Repeat("md5="+fill(m[:])+",", 100),
		}
	}
	for _, header := range headers("") {
		s.do("PUT", "/empty", "", header).is(201)
		s.do("DELETE", "/empty", "").is(204)
	}
	large := strings.Repeat("0123456789abcdef", 1<<16)
	for i, header := range headers(content) {
		path := fmt.Sprint("/", i)
		s.do("PUT", path, content, header).is(201)
		s.do("PUT", path, "the content!", header).is(400).says("broken_upload", strings.SplitN(header, ":", 2)[0])
		s.do("PUT", path, "", header).is(400)
		s.do("PUT", path+"-new", large, header).is(400).says("broken_upload")
		s.do("GET", path, "").is(200).says(content)
		s.do("GET", path+"-new", "").is(404)
	}
	for i, header := range headers(large) {
		s.do("PUT", fmt.Sprint("/large-", i), large, header).is(201)
	}
	for _, header := range []string{
		"Content-MD5: x", "Content-MD5: AAAA", "Digest: md5", "Digest: sha-256=!", "Content-Digest: sha-256=AAAA", "Content-Digest: sha-256=::",
		"Repr-Digest: sha-512=:x:", "OC-Checksum: SHA1:xyz", "OC-Checksum: MD5", "OC-Checksum: MD5:00",
	} {
		s.do("PUT", "/malformed", content, header).is(400).says("invalid_request")
	}
	if staged := s.staged(); len(staged) > 0 {
		t.Errorf("staged: %v", staged)
	}
	s.do("GET", "/malformed", "").is(404)
}

// TestContentEncoding sends bodies with codings, which would be stored as they are.
func TestContentEncoding(t *testing.T) {
	s := serve(t)
	for _, coding := range []string{"gzip", "br", "identity, gzip", "x"} {
		for _, method := range []string{"PUT", "PROPFIND", "PROPPATCH", "LOCK", "MKCOL"} {
			if got := s.do(method, "/a", "1", "Content-Encoding: "+coding, "Depth: 0").is(415); got.header.Get("Accept-Encoding") != "identity" {
				t.Errorf("%s: Accept-Encoding is %q", method, got.header.Get("Accept-Encoding"))
			}
		}
	}
	s.do("PUT", "/a", "1", "Content-Encoding: identity").is(201)
	s.rows("create file a")
}
