package hub

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/memplan/memplan/internal/files"
)

// Endpoint is the address of the hub.
const Endpoint = "https://huggingface.co"

// timeout bounds how long a download may take.
const timeout = 30 * time.Second

// Client downloads configurations from a hub.
type Client struct {
	Context  context.Context
	Endpoint string // of the hub
	Token    string // of the user; "": none
}

// offline are the values of HF_HUB_OFFLINE that huggingface_hub takes for true, in any case
// (huggingface_hub/constants.py).
var offline = []string{"1", "on", "yes", "true"}

// NewClient returns the client that the environment asks for. The error says what of it does not go.
func NewClient(ctx context.Context, env func(name string) (string, bool)) (*Client, error) {
	c := &Client{Context: ctx, Endpoint: Endpoint}
	if e, _ := env("HF_ENDPOINT"); e != "" {
		c.Endpoint = strings.TrimRight(e, "/")
	}
	token, _ := env("HF_TOKEN")
	c.Token = strings.TrimSpace(token)
	if v, _ := env("HF_HUB_OFFLINE"); slices.Contains(offline, strings.ToLower(v)) {
		return nil, fmt.Errorf("HF_HUB_OFFLINE is %s", v)
	}
	switch u, err := url.Parse(c.Endpoint); {
	case err != nil:
		return nil, fmt.Errorf("HF_ENDPOINT is no address")
	case u.Host == "" || !secure(u):
		return nil, fmt.Errorf("HF_ENDPOINT %s: must be an address that begins with https://", u.Redacted())
	}
	return c, nil
}

// secure reports whether what is sent to an address cannot be read on the way: over https, or
// to this machine.
func secure(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// config downloads the configuration of a model.
func (c *Client) config(name string) (*Configuration, error) {
	ctx, cancel := context.WithTimeout(c.Context, timeout)
	defer cancel()
	address := c.Endpoint + "/" + name + "/resolve/main/config.json"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	address = request.URL.Redacted() // what is printed
	request.Header.Set("User-Agent", "memplan")
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := &http.Client{CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if !secure(next.URL) || len(via) > 5 {
			return fmt.Errorf("it redirects to %s", next.URL.Redacted())
		}
		return nil
	}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("--download: %w", err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("--download: %s: %s: there is no such model, or it asks for a token of somebody who has access, in HF_TOKEN", address, answer.Status)
	default:
		return nil, fmt.Errorf("--download: %s: %s", address, answer.Status)
	}
	text, err := files.ReadStream(io.Reader(answer.Body), address, files.MaxText)
	if err != nil {
		return nil, fmt.Errorf("--download: %w", err)
	}
	from := address
	if revision := answer.Header.Get("X-Repo-Commit"); revision != "" {
		from = strings.Replace(from, "/resolve/main/", "/resolve/"+revision+"/", 1)
	}
	return &Configuration{name, text, from}, nil
}
