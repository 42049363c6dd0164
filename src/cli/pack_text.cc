#include "cli/pack_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/python_child.h"
#include "cli/json_text.h"

namespace millrace::cli {

namespace {

constexpr const char* kStart = R"(try:
    from millrace._text_command import main
except ModuleNotFoundError as error:
    sys.exit(f"millrace pack: texts are packed by Python, and {sys.executable} does not have {error.name}: install the package millrace there, or name another Python by MILLRACE_PYTHON")
main(sys.argv[1])
)";

}  // namespace

void AddPackTextOptions(Command pack, PackTextFlags* flags) {
  const Command texts = pack.Under("Texts that become tokens (*.jsonl, *.txt, *.parquet; also .gz and .zst)");
  const Option tokenizer =
      texts.Add("--tokenizer FILE", &flags->tokenizer,
                "tokenizer.json of the package tokenizers, as Hugging Face has it: the destination gets token files, "
                "of which Loader(tokens=...) and feed --tokens make rows");
  const Command with_tokenizer = texts.Beside(tokenizer);
  with_tokenizer.Add("--text-field NAME", &flags->field,
                     "The member or column with the text; a.b is a member of a member [text]");
  with_tokenizer.Add("--bos TOKEN", &flags->bos, "A token of the tokenizer that begins each document [none]");
  with_tokenizer.Add("--eos TOKEN", &flags->eos, "A token that ends each document, such as '<|endoftext|>' [none]");
  with_tokenizer
      .Add("--dtype", &flags->dtype,
           "How tokens are stored [uint16 if the vocabulary has at most 65,536 of them, else int32]")
      .Words({"uint8", "uint16", "int16", "int32", "int64"});
}

absl::Status RunPackText(const std::vector<std::string>& sources, const std::string& destination,
                         const PackTextFlags& flags, bool skip_bad, bool force, bool json) {
  JsonObject options = JSON_OF(Named("source", sources), destination, flags.tokenizer, skip_bad, force, json);
  const auto add = [&options](const char* name, const std::optional<std::string>& value) {
    if (value) options.Add(name, *value);
  };
  add("field", flags.field);
  add("bos", flags.bos);
  add("eos", flags.eos);
  add("dtype", flags.dtype);
  const std::string python = DefaultPython();
  const std::string program = PythonProgram(kStart);
  const std::string text = options.text();
  const std::array<const char*, 5> words = {python.c_str(), "-c", program.c_str(), text.c_str(), nullptr};
  execvp(words[0], const_cast<char* const*>(words.data()));
  return absl::FailedPreconditionError(
      fmt::format("texts are packed by Python, and {} cannot be run ({}); name one by MILLRACE_PYTHON", python,
                  std::strerror(errno)));
}

}  // namespace millrace::cli
