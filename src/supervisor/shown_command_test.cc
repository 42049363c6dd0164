#include "supervisor/shown_command.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Words = std::vector<std::string>;

TEST(WithoutUser, LeavesOutPasswords) {
  EXPECT_EQ(WithoutUser("https://me:secret@host/train"), "https://host/train");
  EXPECT_EQ(WithoutUser("https://host/a@b"), "https://host/a@b");
  EXPECT_EQ(WithoutUser("git@host:me/train"), "git@host:me/train");
}

TEST(ShownCommand, HidesWhatMayBeSecret) {
  EXPECT_EQ(ShownCommand({"env", "-u", "HOME", "A=1", "/usr/bin/env", "B=2", "python", "lr=3"}),
            (Words{"env", "-u", "HOME", "A=***", "/usr/bin/env", "B=***", "python", "lr=3"}));
  EXPECT_EQ(ShownCommand({"t", "--api-key", "x", "--wandb_token=x", "--db.password", "x", "AWS_SECRET_ACCESS_KEY=x"}),
            (Words{"t", "--api-key", "***", "--wandb_token=***", "--db.password", "***", "AWS_SECRET_ACCESS_KEY=***"}));
  EXPECT_EQ(ShownCommand({"t", "--proxy=http://me:x@host:1/a", "https://host/a@b"}),
            (Words{"t", "--proxy=http://host:1/a", "https://host/a@b"}));
  EXPECT_EQ(ShownCommand({"sh", "-c", "HF_TOKEN='x y' A=1  env B=2 t --token \"x\ny\" && echo a"}),
            (Words{"sh", "-c", "HF_TOKEN=***  A=1  env B=*** t --token ***\n && echo a"}));
}

TEST(ShownCommand, HidesTextsThatAreNamed) {
  EXPECT_EQ(ShownCommand({"t", "--a", "it's x", "sh -c 't --a 'it'\\''s x''"}, {"'it'\\''s x'", "it's x", ""}),
            (Words{"t", "--a", "***", "sh -c 't --a ***'"}));
}

TEST(ShownCommand, ShowsTheRest) {
  const Words words{"torchrun", "--tokenizer", "gpt2",   "--max-tokens=5", "--key", "a", "PWD=/a", "--token-file",
                    "t",        "train.py",    "lr=0.1", "--env",          "A=1",   "",  " x "};
  EXPECT_EQ(ShownCommand(words), words);
}

TEST(HasSecret, FindsSecrets) {
  for (const Words& words :
       {Words{"t", "--api-key", "x"}, Words{"t", "--api-key=x"}, Words{"env", "HF_TOKEN=x", "t"},
        Words{"sh", "-c", "HF_TOKEN=x t"}, Words{"t", "https://me:x@host/a"}, Words{"t", "https://x@host/a"}})
    EXPECT_TRUE(HasSecret(words)) << words.back();
  for (const Words& words : {Words{"env", "A=1", "t", "--max-tokens", "5"}, Words{"t", "--token-file", "f"},
                             Words{"git", "clone", "ssh://git@host/a"}, Words{"t", "--api-key"},
                             Words{"sh", "-c", "HF_TOKEN=$(cat f) t --api-key \"$KEY\" --token=`cat g`"}})
    EXPECT_FALSE(HasSecret(words)) << words.back();
}

}  // namespace
}  // namespace millrace
