#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"

namespace millrace::cli {

void AddHelp(Command app) {
  const Command help = app.AddCommand("help", "Show the options and examples of a command");
  auto words = std::make_shared<std::vector<std::string>>();
  help.Add("command", words.get(), "The command, such as feed, or checkpoint gc; without one, all commands");
  help.Footer("Examples:\n  millrace help feed\n  millrace help checkpoint gc");
  help.Run([app, words] {
    const absl::StatusOr<std::string> text = app.Help(*words);
    if (!text.ok()) return Fail("help", AsUsage(text.status()));
    return ExitStatus("help", WriteStdout(*text));
  });
}

}  // namespace millrace::cli
