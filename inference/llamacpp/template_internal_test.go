package llamacpp

import (
	"strings"
	"testing"

	"demur/data"
)

// Renderings were worked out by hand from the templates, after the rules of
// Jinja with trim_blocks and lstrip_blocks, as Transformers sets them.
func TestRender(t *testing.T) {
	user := []data.Message{{Role: "user", Content: "Hi"}}
	system := []data.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"}, {Role: "assistant", Content: "Hello"}, {Role: "user", Content: "Bye"}}
	for _, c := range []struct {
		name, source, think string
		messages            []data.Message
		want                string
	}{
		{
			"ChatML with a default system message", smolTemplate, "", user,
			"<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
		},
		{
			"ChatML with a system message", smolTemplate, "", system,
			"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
		},
		{
			"Llama 3", "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
			"", user, "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		},
		{
			"Gemma", "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
			"", user, "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
		},
		{
			"Mistral", "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}",
			"", system[1:], "<s>[INST] Hi [/INST]Hello</s>[INST] Bye [/INST]",
		},
		{"a date", "{{ strftime_now('%d %B %Y, %A') }}|{{ messages[0].content }}", "", user, "01 January 2026, Thursday|Hi"},
		{"thinking on", thinkTemplate, "on", user, "Hi think"},
		{"thinking off", thinkTemplate, "off", user, "Hi <think>\n\n</think>\n\n"},
		{"thinking unset", thinkTemplate, "", user, "Hi unset"},
		{
			"blocks on lines of their own", "{%- for m in messages %}\n    {%- if m.role == 'user' %}\n{{ m.content }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\nA:\n{%- endif %}",
			"", user, "HiA:",
		},
	} {
		tpl, err := newChatTemplate(c.source, "<s>", "</s>", c.think)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got, err := tpl.render(c.messages); err != nil || got != c.want {
			t.Errorf("%s:\n got %q, %v\nwant %q", c.name, got, err, c.want)
		}
	}
}

// smolTemplate is the chat template of SmolLM2-135M-Instruct.
const smolTemplate = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

const thinkTemplate = "{{ messages[0].content }} {% if enable_thinking is defined %}{% if enable_thinking %}think{% else %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% else %}unset{% endif %}"

func TestTemplateErrors(t *testing.T) {
	if _, err := newChatTemplate("{% if %}", "", "", ""); err == nil {
		t.Error("a template with a mistake is accepted")
	}
	tpl, err := newChatTemplate("{{ raise_exception('no system message, please') }}", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.render([]data.Message{{Role: "user", Content: "x"}}); err == nil || !strings.Contains(err.Error(), "no system message, please") {
		t.Errorf("the template's own words are lost: %v", err)
	}
}

func TestTemplateBytes(t *testing.T) {
	tpl, err := newChatTemplate(smolTemplate, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	m := []data.Message{{Role: "user", Content: "a<|im_end|>b"}}
	text, err := tpl.render(m)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := templateBytes(tpl, m, text)
	if err != nil {
		t.Fatal(err)
	}
	var theirs strings.Builder
	for i := range len(text) {
		if !mine[i] {
			theirs.WriteByte(text[i])
		}
	}
	if got := theirs.String(); got != m[0].Content {
		t.Errorf("the message's part of the text is %q, want %q", got, m[0].Content)
	}
	// A template that changes the message hides what came from where.
	tpl, err = newChatTemplate("{{ messages[0].content | upper }}", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = tpl.render(m); err != nil {
		t.Fatal(err)
	}
	if _, err := templateBytes(tpl, m, text); err == nil {
		t.Error("a changed message is taken for the template's own words")
	}
}

func FuzzRender(f *testing.F) {
	f.Add(smolTemplate, "user", "Hi")
	f.Add(thinkTemplate, "system", "a\x00b")
	f.Add("{% for m in messages %}{{ m.content[1:3] }}{% endfor %}", "user", "héé")
	f.Fuzz(func(t *testing.T, source, role, content string) {
		if len(source) > 300 || strings.Contains(source, "*") || strings.Contains(source, "indent") || strings.Contains(source, "center") {
			t.Skip() // one expression may ask for all memory, which ends the process
		}
		tpl, err := newChatTemplate(source, "<s>", "</s>", "")
		if err != nil {
			return
		}
		m := []data.Message{{Role: role, Content: content}}
		text, err := tpl.render(m)
		if err != nil {
			return
		}
		if mine, err := templateBytes(tpl, m, text); err == nil && len(mine) != len(text) {
			t.Fatalf("%d marks for %d bytes", len(mine), len(text))
		}
	})
}
