#pragma once

#include "cli/command_line.h"

/// This file has the subcommands of `millrace`, one file each. An Add function adds its subcommand, and says what it
/// does.

namespace millrace::cli {

void AddAdvise(Command app);
void AddBench(Command app);
void AddCache(Command app);
void AddCat(Command app);
void AddCheckpoint(Command app);
void AddCompileCache(Command app);
void AddCp(Command app);
void AddDevstore(Command app);
void AddDoctor(Command app);
void AddEnv(Command app);
void AddFeed(Command app);
void AddHelp(Command app);
void AddIndex(Command app);
void AddInspect(Command app);
void AddLs(Command app);
void AddMount(Command app);
void AddPack(Command app);
void AddRm(Command app);
void AddRun(Command app);
void AddSync(Command app);
void AddSynth(Command app);
void AddTop(Command app);
void AddUploads(Command app);
void AddVolume(Command app);
void AddWorker(Command app);

/// These add commands below `bench` and `cache`.
void AddBenchCompare(Command bench);
void AddCacheWarm(Command cache);
void AddCacheSimulate(Command cache);

}  // namespace millrace::cli
