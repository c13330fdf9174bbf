package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/report"
)

// The objects of SARIF 2.1.0 that a result needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string     `json:"id"`
		Name    string     `json:"name"`
		Short   sarifText  `json:"shortDescription"`
		Full    sarifText  `json:"fullDescription"`
		Help    sarifText  `json:"help"`
		Default sarifLevel `json:"defaultConfiguration"`
	}
	sarifLevel struct {
		Level Severity `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful bool `json:"executionSuccessful"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        Severity          `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId,omitempty"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn"`
	}
)

const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

var _ = Formats.Add(Format{Name: "sarif", Doc: "for code scanning (GitHub): SARIF 2.1.0", Rank: 3, Write: writeSARIF})

// writeSARIF prints a log of one run. Severities are SARIF's levels.
func writeSARIF(w io.Writer, r *Result, s Style) error {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "memplan", Version: s.Version}},
		Invocations: []sarifInvocation{{Successful: r.Unread == 0}},
		ColumnKind:  "unicodeCodePoints",
		Results:     []sarifResult{},
	}
	index := map[string]int{}
	for i, rule := range Rules() {
		index[rule.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: rule.ID, Name: rule.Name, Short: sarifText{sentence(rule.Doc)}, Full: sarifText{rule.Help}, Help: sarifText{rule.Help},
			Default: sarifLevel{rule.Severity},
		})
	}
	for _, f := range r.All() {
		run.Results = append(run.Results, sarifResult{
			RuleID: f.Rule, RuleIndex: index[f.Rule], Level: f.Severity, Message: sarifText{unlinked(printable.Text(f.Message))},
			Locations:    []sarifLocation{{sarifPhysical{artifact(s.path(f.File)), sarifRegion{f.Line, f.Column}}}},
			Fingerprints: map[string]string{"memplan/v1": fingerprint(&f)},
		})
	}
	return report.JSON(w, sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

// unlinked is a message without links, which SARIF writes as Markdown does.
func unlinked(s string) string { return strings.ReplaceAll(s, "](", "] (") }

// sentence begins with a capital letter and ends with a stop, as SARIF asks of
// descriptions.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// artifact names a file as a URI: relative paths from the root of the source.
func artifact(path string) sarifArtifact {
	slashed := filepath.ToSlash(path)
	u := url.URL{Path: slashed}
	switch {
	case !isFile(path):
		return sarifArtifact{URI: "memplan:" + url.PathEscape(path)}
	case filepath.IsAbs(path):
		u.Scheme = "file"
		if !strings.HasPrefix(slashed, "/") {
			u.Path = "/" + slashed
		}
		return sarifArtifact{URI: u.String()}
	}
	return sarifArtifact{URI: u.String(), Base: "%SRCROOT%"}
}

// fingerprint stays the same while lines move and figures change, so that a
// finding is not taken for a new one: it is of the rule, the spec and the GPU.
func fingerprint(f *Located) string {
	device := ""
	if f.Of != nil {
		device = f.Of.Asked
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Rule, filepath.ToSlash(f.File), device, f.subject()}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// subject tells apart findings of one rule in one spec: their messages, of rules
// whose messages have no figures that change with every edit.
func (f *Located) subject() string {
	if LookupRule(f.Rule).worded {
		return f.Message
	}
	return ""
}
