package proxies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/coder/websocket"
)

// appCommand is the first argument that makes this program the process of an app.
const appCommand = "proxies-app"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == appCommand {
		fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), appHandler()))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// seen has the values of a request that an app gets.
type seen struct {
	Host, URI, Client, Proto, ForwardedHost, Cookie string
	Bytes                                           int64
}

// appHandler serves the app of these tests.
func appHandler() http.Handler {
	proceed := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_ = json.NewEncoder(w).Encode(seen{
			Host: r.Host, URI: r.RequestURI, Client: r.Header.Get("X-Forwarded-For"), Proto: r.Header.Get("X-Forwarded-Proto"),
			ForwardedHost: r.Header.Get("X-Forwarded-Host"), Cookie: r.Header.Get("Cookie"), Bytes: n,
		})
	})
	mux.HandleFunc("/download", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(upload) })
	// Without a length, only the end of the response says that it is complete.
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(upload[:len(upload)/2])
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(upload[len(upload)/2:])
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	mux.HandleFunc("/absolute", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.Header.Get("X-Forwarded-Proto")+"://"+r.Host+"/elsewhere", http.StatusFound)
	})
	// The stream goes on when the client has got its beginning, and says so by /proceed.
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-proceed:
			_, _ = io.WriteString(w, "data: second\n\n")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/proceed", func(w http.ResponseWriter, r *http.Request) { proceed <- struct{}{} })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		c.SetReadLimit(-1)
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, bytes.ToUpper(message)) != nil {
				return
			}
		}
	})
	return mux
}
