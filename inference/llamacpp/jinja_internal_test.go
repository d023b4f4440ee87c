package llamacpp

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"demur/data"
)

// conversation holds what a template could stumble over.
var conversation = []data.Message{
	{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi {{x}} 'n' \\n"}, {Role: "assistant", Content: "Yo"}, {Role: "user", Content: "Bye "},
}

// Renderings are those of Python's Jinja2 3.1.6, in the environment that
// Transformers gives chat templates: ImmutableSandboxedEnvironment with
// trim_blocks, lstrip_blocks and the extension loopcontrols.
func TestRenderAsJinja2(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"blocks on lines", "{% for m in messages %}\n{% if m.role == 'user' %}\n{{ '<|user|>\n' + m.content }}\n{% elif m.role == 'system' %}\n{{ '<|system|>\n' + m.content }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}", "<|system|>\nBe brief.\n<|user|>\nHi {{x}} 'n' \\n\n<|user|>\nBye \n<|assistant|>\n"},
		{"a newline at the end", "{{ messages[1].role }}\nA:\n", "user\nA:"},
		{"two newlines at the end", "{{ messages[1].role }}\nA:\n\n", "user\nA:\n"},
		{"carriage returns", "{% for m in messages %}\r\n{{ m.role }}\r\n{% endfor %}\r\nA:\r\n", "system\nuser\nassistant\nuser\nA:"},
		{"indented blocks", "  {% for m in messages %}\n    {% if m.role == 'user' %}\n  x{{ m.role }}\n\t{% endif %}\n  {% endfor %}\nend", "  xuser\n  xuser\nend"},
		{"a minus that reaches to the next tag only", "{% for m in messages -%}\n  {{ m.role }}\n  {{- m.content }} | {{ m.role -}}{# c #} end\n{% endfor %}", "systemBe brief. | system end\nuserHi {{x}} 'n' \\n | user end\nassistantYo | assistant end\nuserBye  | user end\n"},
		{"a plus keeps blanks", "  {%+ if true %}\n  a\n  {%+ endif +%}\nb", "    a\n  \nb"},
		{"comments", "a\n  {# don't\n stop #}\nb {#- x -#} c", "a\nbc"},
		{"comment with quotes and tags", "{# it's {{ x }} {% for %} \" #}ok", "ok"},
		{"dicts in tags", "{{ {'a': {'b': 1}}['a']['b'] }}|{% set d = {'k': {'l': 'm'}} %}{{ d.k.l }}", "1|m"},
		{"closing marks in quotes", "{{ '}}' }}{{ \"%}\" }}{% if '%}' == '%}' %}y{% endif %}", "}}%}y"},
		{"raw", "{% raw %}\n{{ x }} {% for %}'\\ {% endraw %}\nz", "\n{{ x }} {% for %}'\\ z"},
		{"raw with marks", "a  {%- raw -%}  {{ x }}  {%- endraw -%}  b", "a{{ x }}b"},
		{"a brace before a tag", "{ {% if true %}{{'a'}}{% endif %}}{ {%- if true %}b{% endif %}", "{ a}{b"},
		{"nothing", "", ""},
		{"blanks alone", "  \n", "  "},
		{"macros", "{%- macro tag(r, c='none') -%}\n<{{ r }}>{{ c }}\n{%- endmacro -%}\n{{ tag('u', 'Hi') }} {{ tag('v') }}\n", "<u>Hi <v>none"},
		{"inline text after an expression", "{{ 'a' }}\n{{ 'b' }}\n  {{ 'c' }}  {% if true %} d {% endif %}\n", "a\nb\n  c   d "},
		{"set and namespace", "{% set ns = namespace(n=0) %}\n{% for m in messages %}\n{% if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}\n{% endfor %}\n{{ ns.n }}", "2"},
		{"range", "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 1, -2) %}{{ i }}{% endfor %}{% for i in range(0) %}x{% else %}none{% endfor %}", "01253none"},
		{"a loop in a loop", "{% for m in messages %}\n  {% for n in messages if n.role == m.role %}\n    {{ loop.index }}{% if not loop.last %},{% endif %}\n\n  {% endfor %}\n{% endfor %}", "    1\n    1,\n    2\n    1\n    1,\n    2\n"},
		{"break and continue", "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{% if loop.index == 4 %}{% break %}{% endif %}{{ m.role }}\n{% endfor %}", "system\nassistant\n"},
		{"minus over lines", "{{ 'a' }}\n\n  {%- if true -%}\n\n  b\n\n  {%- endif %}\n\n  c", "ab\n  c"},
		{"Qwen-like", "{%- if messages[0].role == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n{%- endif %}\n{%- for message in messages %}\n    {%- if message.role == \"user\" %}\n        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n    {%- elif message.role == \"assistant\" %}\n        {{- '<|im_start|>' + message.role + '\\n' + message.content }}\n        {{- '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{x}} 'n' \\n<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nBye <|im_end|>\n<|im_start|>assistant\n"},
		{"a tag right after a text line", "x\n{% if true %}y{% endif %}  \n  {{ 'z' }}", "x\ny  \n  z"},
	} {
		tpl, err := newChatTemplate(c.source, "<s>", "</s>", "")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, err := tpl.render(conversation); err != nil || got != c.want {
			t.Errorf("%s:\n got %q, %v\nwant %q", c.name, got, err, c.want)
		}
	}
}

// A template is a program from outside, for which the interpreter has no limit.
func TestRunawayTemplates(t *testing.T) {
	deep := strings.Repeat("{% for x in [1,2,3,4,5,6,7,8,9,10] %}", 12) + "a" + strings.Repeat("{% endfor %}", 12)
	for _, c := range []struct{ name, source, says string }{
		{"loops in loops", deep, "turns of loops"},
		{"a loop that has nothing in it", strings.Replace(deep, "a", "", 1), "turns of loops"},
		{"a long range", "{% for i in range(1000000000000) %}a{% endfor %}", "range"},
		{"a long range that is only counted", "{{ range(1000000000000) | length }}", "range"},
		{"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros that call each other"},
		{"macros that call each other", "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "macros"},
		{"a macro that calls itself twice", "{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(100) }}", "turns of loops"},
		{"a text that doubles", "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}", "memory"},
		{"a long text", "{% set ns = namespace(x='0123456789abcdef') %}{% for i in range(23) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}", "bytes of text"},
	} {
		start := time.Now()
		_, err := newChatTemplate(c.source, "", "", "")
		if !errors.Is(err, errRunaway) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one of %q", c.name, err, c.says)
		}
		if took := time.Since(start); took > 2*maxTemplateTime {
			t.Errorf("%s: took %v", c.name, took)
		}
	}
	// Only where a message asks for it: the error is that prompt's.
	tpl, err := newChatTemplate("{% if messages[0].content == 'loop' %}"+deep+"{% else %}{{ messages[0].content }}{% endif %}", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.render([]data.Message{{Role: "user", Content: "loop"}}); !errors.Is(err, errRunaway) {
		t.Errorf("error %v", err)
	}
	if got, err := tpl.render([]data.Message{{Role: "user", Content: "bread"}}); got != "bread" || err != nil {
		t.Errorf("the next prompt: %q, %v", got, err)
	}
}

// TestRunawayExpression is a process that asks for four gigabytes in one
// expression, where no step is counted.
func TestRunawayExpression(t *testing.T) {
	if os.Getenv("DEMUR_TEST_EXPRESSION") != "" {
		_, err := newChatTemplate("{{ ('a' * 4000000000) | length }}{{ ('a' * 4000000000) | upper | lower | length }}", "", "", "")
		t.Fatal("it goes on with:", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^TestRunawayExpression$")
	c.Env = append(os.Environ(), "DEMUR_TEST_EXPRESSION=1")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "one expression takes too much time or memory") {
		t.Errorf("it ends with %v\n%.2000s", err, out)
	}
}

// A conversation of thousands of messages is no runaway.
func TestLongConversationsRender(t *testing.T) {
	tpl, err := newChatTemplate("{% for m in messages %}{% for n in messages[:20] %}{{ n.role[0] }}{% endfor %}{{ m.content }}\n{% endfor %}", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	many := make([]data.Message, 5000)
	for i := range many {
		many[i] = data.Message{Role: "user", Content: "How do I bake bread?"}
	}
	if got, err := tpl.render(many); err != nil || strings.Count(got, "\n") != len(many) {
		t.Errorf("%d lines, %v", strings.Count(got, "\n"), err)
	}
}

func TestTemplatesThatCannotBeRead(t *testing.T) {
	for _, source := range []string{
		"{% for m in messages %}", "{{ 'a }}", "{# without an end", "{% raw %}a", "{{", "{%- if", strings.Repeat("a", maxTemplateSource+1),
	} {
		if _, err := newChatTemplate(source, "", "", ""); err == nil {
			t.Errorf("%.30q is accepted", source)
		}
	}
}
