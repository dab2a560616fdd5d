package pages

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Problem is the page that shows an error.
type Problem struct {
	Title, Text string
	// Request is the id of the request, for the operators; empty if it does not help them.
	Request string
	// Link is a path to continue with, and LinkText its text; empty: none.
	Link, LinkText string
}

func (p Problem) page() page {
	return page{title: p.Title, main: g.Group{
		h.H1(g.Text(p.Title)),
		h.P(g.Text(p.Text)),
		g.If(p.Request != "", quiet(g.Text("Request "), h.Code(g.Text(p.Request)))),
		g.If(p.Link != "", h.P(link(p.Link, g.Text(p.LinkText)))),
	}}
}
