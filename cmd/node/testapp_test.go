package node

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

// testApp is the first argument of the test program with which it is the process of an app.
const testApp = "test-app"

// runTestApp serves HTTP on the port of an app. The arguments say what it answers, and what it prints first.
func runTestApp(arguments []string) int {
	fmt.Println("the key is", os.Getenv("SERVICE_APP_API_KEY"))
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("listening")
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Join(arguments, " ")) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(os.Environ()) })
	mux.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		os.Exit(status)
	})
	// /api calls an operation of the API with the key of the app, and answers with its status and body.
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
	fmt.Fprintln(os.Stderr, http.Serve(l, mux))
	return 1
}
