package pages

import (
	"html/template"
	"time"
)

var functions = template.FuncMap{
	"style": func() template.CSS { return template.CSS(style) }, // a file of the program, without text of visitors
	"day":   func(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006") },
	"time":  func(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006, 15:04 UTC") },
	"iso":   func(at int64) string { return time.UnixMilli(at).UTC().Format(time.RFC3339) },
}
