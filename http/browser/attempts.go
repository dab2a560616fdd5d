package browser

import (
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"github.com/atelier-run/atelier/http/server"
)

// An attempt is a sign-in while the browser is at the provider. It is stored in sealed cookies of its own, so that several tabs can
// be at the provider at the same time. A long path to continue with needs more than one cookie. The attempts that began first are
// dropped from the browser if all together would make requests too long for proxies.
type attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Next     string `json:"next"`
	Until    int64  `json:"until"`
	// Failed reports that the sign-in could not be completed when the browser came back, for example because the provider did not
	// answer. The code may be used up, so that the same request again starts another attempt.
	Failed bool `json:"failed,omitzero"`
}

const (
	// attemptTime is the time in which the browser must return from the provider.
	attemptTime = 10 * time.Minute
	// maxAttemptCookie bounds the value of a cookie; browsers take 4096 bytes with its name. maxAttemptCookies bounds the number
	// of cookies of one attempt, and maxAttempts the values of all attempts of a browser, in bytes.
	maxAttemptCookie  = 3800
	maxAttemptCookies = 3
	maxAttempts       = 7 << 10
	// attemptIDLength is the length of the part of State that is in the names of the cookies.
	attemptIDLength = 8
)

func newAttempt(now time.Time, next string) attempt {
	return attempt{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next, Until: now.Add(attemptTime).UnixMilli(),
	}
}

// attemptCookie returns the name of the nth cookie of the attempt with a state.
func attemptCookie(c *server.Call, state string, n int) string {
	return c.CookieName() + "-oidc-" + state[:attemptIDLength] + string(rune('a'+n))
}

// attemptState returns the beginning of the state that a cookie belongs to, which attemptCookie takes. ok is false for other
// cookies.
func attemptState(c *server.Call, name string) (state string, ok bool) {
	id, is := strings.CutPrefix(name, c.CookieName()+"-oidc-")
	if !is || len(id) != attemptIDLength+1 {
		return "", false
	}
	return id[:attemptIDLength], true
}

// saveAttempt stores an attempt in cookies. Its path to continue with is replaced by the account if it is too long for them.
func (p *provider) saveAttempt(c *server.Call, a attempt) error {
	text, err := p.sealAttempt(a)
	if err != nil {
		return err
	}
	if len(text) > maxAttemptCookie*maxAttemptCookies || len(text) > maxAttempts {
		a.Next = accountPath
		if text, err = p.sealAttempt(a); err != nil {
			return err
		}
	}
	p.dropAttempts(c, a.State, maxAttempts-len(text))
	endAttempt(c, a.State) // it may have had more cookies before
	n := 0
	for part := range slices.Chunk([]byte(text), maxAttemptCookie) {
		setCookie(c, attemptCookie(c, a.State, n), string(part), attemptTime)
		n++
	}
	return nil
}

func (p *provider) sealAttempt(a attempt) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return base64.RawURLEncoding.EncodeToString(p.seal.Seal(nil, nil, packed.Bytes(), nil)), err
}

// openAttempt returns the attempt of a state from the browser's cookies. ok is false if there is none or it has expired.
func (p *provider) openAttempt(c *server.Call, state string) (a attempt, ok bool) {
	var text strings.Builder
	for n := range maxAttemptCookies {
		cookie, err := c.Request.Cookie(attemptCookie(c, state, n))
		if err != nil {
			break
		}
		text.WriteString(cookie.Value)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text.String())
	if err != nil {
		return a, false
	}
	packed, err := p.seal.Open(nil, nil, sealed, nil)
	if err != nil {
		return a, false
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), 2*maxNext))
	if err != nil || json.Unmarshal(plain, &a) != nil {
		return a, false
	}
	return a, c.Now().UnixMilli() < a.Until
}

// readAttempt returns the attempt that the request belongs to. ok is false if the browser has none with the state of the request,
// or it has expired.
func (p *provider) readAttempt(c *server.Call) (a attempt, ok bool) {
	state := c.Request.URL.Query().Get("state")
	if len(state) < attemptIDLength {
		return a, false
	}
	a, ok = p.openAttempt(c, state)
	return a, ok && subtle.ConstantTimeCompare([]byte(state), []byte(a.State)) == 1
}

// endAttempt deletes the cookies of the attempt with a state.
func endAttempt(c *server.Call, state string) {
	for _, cookie := range c.Request.Cookies() {
		if id, is := attemptState(c, cookie.Name); is && strings.HasPrefix(state, id) {
			setCookie(c, cookie.Name, "", 0)
		}
	}
}

// dropAttempts deletes the cookies of all attempts but the attempt with the state kept, the oldest attempts first, until the rest
// has at most the given number of bytes. Attempts that cannot be read or have expired are deleted first.
func (p *provider) dropAttempts(c *server.Call, kept string, most int) {
	size, began := map[string]int{}, map[string]int64{}
	total := 0
	for _, cookie := range c.Request.Cookies() {
		id, is := attemptState(c, cookie.Name)
		if !is || strings.HasPrefix(kept, id) {
			continue
		}
		if _, seen := size[id]; !seen {
			if a, ok := p.openAttempt(c, id); ok {
				began[id] = a.Until
			}
		}
		size[id] += len(cookie.Value)
		total += len(cookie.Value)
	}
	ids := make([]string, 0, len(size))
	for id := range size {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(began[a], began[b]), cmp.Compare(a, b)) })
	for _, id := range ids {
		if total <= most {
			return
		}
		endAttempt(c, id)
		total -= size[id]
	}
}
