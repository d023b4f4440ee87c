//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// withoutNetwork returns a command that runs in a network namespace of its own,
// in which there is no interface but a loopback that is down. It skips where the
// system does not allow that.
func withoutNetwork(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is not installed:", err)
	}
	if out, err := exec.Command(unshare, "-rn", "true").CombinedOutput(); err != nil {
		t.Skipf("network namespaces cannot be made here: %v: %s", err, out)
	}
	return exec.Command(unshare, append([]string{"-rn", name}, args...)...)
}

// TestBundleRunsWithoutNetwork packs the bundle, unpacks it elsewhere and runs
// the demo from it with an empty home folder and no network.
func TestBundleRunsWithoutNetwork(t *testing.T) {
	if os.Getenv("DEMUR_LONG") == "" {
		t.Skip("takes minutes; set DEMUR_LONG=1")
	}
	withoutNetwork(t, "true")
	make := exec.Command("make", "-s", "-C", "../..", "bundle")
	var said bytes.Buffer
	make.Stderr = &said
	out, err := make.Output()
	if err != nil {
		t.Fatalf("make bundle: %v\n%s", err, said.String())
	}
	lines := strings.Fields(string(out))
	archive, err := filepath.Abs(filepath.Join("../..", lines[len(lines)-1]))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	roots, err := filepath.Glob(filepath.Join(dir, "demur-*"))
	if err != nil || len(roots) != 1 {
		t.Fatalf("the archive holds %v, want one folder", roots)
	}
	sums := exec.Command("sha256sum", "-c", "--quiet", "SHA256SUMS")
	sums.Dir = roots[0]
	if out, err := sums.CombinedOutput(); err != nil {
		t.Fatalf("checksums: %v: %s", err, out)
	}
	home := t.TempDir()
	demo := withoutNetwork(t, filepath.Join(roots[0], "bin", "demur"), "demo", "--quiet")
	demo.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	text, err := demo.CombinedOutput()
	if err != nil {
		t.Fatalf("demo without network: %v\n%s", err, text)
	}
	if !bytes.Contains(text, []byte("the instrument is calibrated")) {
		t.Errorf("the demo says:\n%s", text)
	}
}
