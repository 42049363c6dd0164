#pragma once

#include <functional>

namespace CLI {
class App;
}

/// The subcommands of `millrace`, one file each. An Add function adds its subcommand to `app` and, when the user chose
/// the command, stores in `*run` what main() then calls; its result is the exit status: 0 done, 1 failed, 2 usage.

namespace millrace::cli {

using Action = std::function<int()>;

void AddCat(CLI::App& app, Action* run);
void AddCp(CLI::App& app, Action* run);
void AddDevstore(CLI::App& app, Action* run);
void AddDoctor(CLI::App& app, Action* run);
void AddFeed(CLI::App& app, Action* run);
void AddIndex(CLI::App& app, Action* run);
void AddInspect(CLI::App& app, Action* run);
void AddLs(CLI::App& app, Action* run);
void AddPack(CLI::App& app, Action* run);
void AddRm(CLI::App& app, Action* run);
void AddSync(CLI::App& app, Action* run);
void AddSynth(CLI::App& app, Action* run);

}  // namespace millrace::cli
