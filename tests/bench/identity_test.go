package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkMembers asks workspaces with a hundred and with ten thousand members the same, in turns: for a page of fifty
// members at the start and in the middle, and for all whose name two have, who lie at the start and at the end. Of the
// search the time of one member is reported.
func BenchmarkMembers(b *testing.B) {
	sizes := []int{100, 10_000}
	n := newNation(b)
	questions := map[int]map[string]string{}
	for _, members := range sizes {
		slug := fmt.Sprint("members-", members)
		n.settle(slug, members)
		path := "/v1/ws/" + slug + "/members?limit=50"
		questions[members] = map[string]string{
			"first": path, "middle": path + "&cursor=" + n.cursor(path, members/100), "search": path + "&search=twin",
		}
	}
	for _, question := range []string{"first", "middle", "search"} {
		found := map[string]int{"first": 50, "middle": 50, "search": 2}[question]
		b.Run(question, func(b *testing.B) {
			took := map[int][]time.Duration{}
			for b.Loop() {
				for turn := range Turns * len(sizes) {
					members := sizes[turn%len(sizes)]
					for range 64 {
						took[members] = append(took[members], n.walk(question == "search", questions[members][question], found))
					}
				}
			}
			reportSizes(b, sizes, took, func(members int) float64 {
				if question == "search" { // every member is passed over
					return float64(members)
				}
				return 1
			})
		})
	}
}

// BenchmarkWhoami asks for people with ten and with a thousand workspaces, in turns; what is reported is the time of one
// workspace.
func BenchmarkWhoami(b *testing.B) {
	sizes := []int{10, 1000}
	n := newNation(b)
	keys := map[int]string{}
	for _, workspaces := range sizes {
		keys[workspaces] = n.person(fmt.Sprintf("owner-of-%d@example.com", workspaces))
		n.together(workspaces, func(i int) error {
			body := fmt.Sprintf(`{"slug":"place-%d-of-%d","name":"Place"}`, i, workspaces)
			return send(n.Node.Server, "/v1/workspaces", keys[workspaces], body, &struct{}{})
		})
	}
	took := map[int][]time.Duration{}
	for b.Loop() {
		for turn := range Turns * len(sizes) {
			workspaces := sizes[turn%len(sizes)]
			for range 3 + 200/workspaces {
				n.Key = keys[workspaces]
				took[workspaces] = append(took[workspaces], n.ask("/v1/whoami", new(struct{ Workspaces []struct{ ID string } })))
			}
		}
	}
	reportSizes(b, sizes, took, func(workspaces int) float64 { return float64(workspaces) })
}

// reportSizes reports the time at each size, for one of so many, and what that is of the time at the first.
func reportSizes(b *testing.B, sizes []int, took map[int][]time.Duration, of func(size int) float64) {
	b.ReportMetric(0, "ns/op")
	for _, size := range sizes {
		b.ReportMetric(1000*micros(took[size])/of(size), fmt.Sprintf("at-%d-ns", size))
	}
	first, last := sizes[0], sizes[len(sizes)-1]
	b.ReportMetric(micros(took[last])/of(last)/(micros(took[first])/of(first)), fmt.Sprintf("of-%d-at-%d", first, last))
}
