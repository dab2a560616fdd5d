// Command service is an app: a service that calls the API with its key, and streams the messages of its visitors to its listeners.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	said := make(chan string)
	http.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Proto, r.Host) })
	http.HandleFunc("GET /whoami", whoAmI)
	http.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) { sendEvents(w, r, said) })
	http.HandleFunc("POST /say", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case said <- string(text):
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})
	log.Fatal(http.ListenAndServe(net.JoinHostPort("127.0.0.1", os.Getenv("PORT")), nil))
}

// sendEvents streams the messages as server-sent events.
func sendEvents(w http.ResponseWriter, r *http.Request, said <-chan string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: listening\n\n")
	for {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case text := <-said:
			fmt.Fprintf(w, "data: %s\n\n", text)
		case <-r.Context().Done():
			return
		}
	}
}

// whoAmI answers with the response of the API to the app's key.
func whoAmI(w http.ResponseWriter, r *http.Request) {
	call, err := http.NewRequestWithContext(r.Context(), http.MethodGet, os.Getenv("SERVICE_API_URL")+"/v1/whoami", nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	call.Header.Set("Authorization", "Bearer "+os.Getenv("SERVICE_APP_API_KEY"))
	answer, err := http.DefaultClient.Do(call)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	w.WriteHeader(answer.StatusCode)
	if _, err := io.Copy(w, answer.Body); err != nil {
		log.Print(err)
	}
}
