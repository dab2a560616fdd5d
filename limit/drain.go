package limit

import (
	"io"
	"net/http"
)

// maxDrain is the number of bytes that Drain reads at the most.
const maxDrain = 64 << 20

// Drain reads the rest of the body of a request that is refused early, such as an upload with an invalid key, before the response is
// sent. Otherwise the server would close the connection while the client still sends, and proxies would answer 502 in place of the
// refusal. It does not read a body that is longer than 64 MiB, nor one that the client sends only after 100 Continue. The caller bounds
// the time by a read deadline. Where a part remains or reading fails, the server closes the connection after the response.
func Drain(r *http.Request, body io.Reader) {
	if body == nil || r.ContentLength == 0 || r.ContentLength > maxDrain || r.Header["Expect"] != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, body, maxDrain)
}
