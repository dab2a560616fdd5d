package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// serveApp serves HTTP on the port in the variable PORT, as the process of an app. It answers with the texts. /env has its variables,
// /exit ends it with the status of the parameter, /wait gives no answer, and /api calls an operation of the API with the key of the app.
func serveApp(texts []string, out, errors io.Writer) int {
	fmt.Fprintln(out, "the key is", os.Getenv("SERVICE_APP_API_KEY"))
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		fmt.Fprintln(errors, err)
		return 1
	}
	fmt.Fprintln(out, "listening")
	ended := make(chan int)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Join(texts, " ")) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(os.Environ()) })
	mux.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		ended <- status
		<-r.Context().Done() // there is no answer
	})
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/api", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		call, err := http.NewRequest(q.Get("method"), os.Getenv("SERVICE_API_URL")+q.Get("path"), r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		call.Header.Set("Authorization", "Bearer "+os.Getenv("SERVICE_APP_API_KEY"))
		call.Header.Set("Content-Type", r.Header.Get("Content-Type"))
		response, err := http.DefaultClient.Do(call)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.WriteHeader(response.StatusCode)
		io.Copy(w, response.Body)
	})
	go func() {
		fmt.Fprintln(errors, http.Serve(l, mux))
		ended <- 1
	}()
	return <-ended
}
