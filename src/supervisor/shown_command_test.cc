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

TEST(ShownCommand, KnowsNamesOfSecretsAsProgramsWriteThem) {
  for (const char* word :
       {"wandb.api_key=x", "++wandb.api_key=x", "~db.password=x", "cfg[api_key]=x", "PGPASSWORD=x", "--hfToken=x",
        "HFToken=x", "HF_TOKEN2=x", "GITHUB_PAT=x", "DB_PASS=x", "AZURE_STORAGE_KEY=x", "OPENAIAPIKEY=x"}) {
    const std::string_view name = std::string_view(word).substr(0, std::string_view(word).find('='));
    EXPECT_EQ(ShownCommand({word}), Words{std::string(name) + "=***"});
  }
  for (const char* option :
       {"--hfToken", "--pass", "--secretAccessKey", "--github-pat", "--access_token", "--db.passwd"})
    EXPECT_EQ(ShownCommand({option, "x", "y"}), (Words{option, "***", "y"}));
  EXPECT_EQ(ShownCommand({"env", "--unset", "A", "B=2", "--chdir", "/c", "D=x", "train"}),
            (Words{"env", "--unset", "A", "B=***", "--chdir", "/c", "D=***", "train"}));
}

TEST(ShownCommand, HidesSecretsWithinAWord) {
  EXPECT_EQ(ShownCommand({"https://h/a?X-Amz-Date=1&X-Amz-Signature=x&b=2", "http://h?sig=x", "h?access_token=x&v=1"}),
            (Words{"https://h/a?X-Amz-Date=1&X-Amz-Signature=***&b=2", "http://h?sig=***", "h?access_token=***&v=1"}));
  EXPECT_EQ(ShownCommand({R"({"api_key":"x y","lr":1})", R"({"api_key": "x", "password":12,"lr":1})", "{token:x,a:b}"}),
            (Words{R"({"api_key":*** ,"lr":1})", R"({"api_key": *** "password":***,"lr":1})", "{token:***,a:b}"}));
  EXPECT_EQ(ShownCommand({R"(t --c "{\"api_key\":\"x\",\"lr\":1}")"}),
            (Words{R"(t --c "{\"api_key\":***,\"lr\":1}")"}));
  EXPECT_EQ(ShownCommand({"--export=ALL,HF_TOKEN=x,A=1", "A=1;AccountName=me;AccountKey=x;B=2", "\"HF_TOKEN=x y\" z"}),
            (Words{"--export=ALL,HF_TOKEN=***,A=1", "A=1;AccountName=me;AccountKey=***;B=2", "\"HF_TOKEN=***  z"}));
  EXPECT_EQ(ShownCommand({"--etcd=http://a,http://me:x@b,http://me:x@c"}), Words{"--etcd=http://a,http://b,http://c"});
}

TEST(ShownCommand, AWordEndsItsQuotes) {
  EXPECT_EQ(ShownCommand({"t", "--password", "\"a b", "--token='x", "c", "d\"e"}),
            (Words{"t", "--password", "*** ", "--token=***", "c", "d\"e"}));
}

TEST(ShownCommand, HidesSecretsOfHeaders) {
  EXPECT_EQ(ShownCommand({"curl", "-H", "Authorization: Bearer x", "-HX-Api-Key: x", "--header=Authorization=Basic x"}),
            (Words{"curl", "-H", "Authorization: Bearer ***", "-HX-Api-Key: ***", "--header=Authorization=Basic ***"}));
  EXPECT_EQ(ShownCommand({"sh", "-c", "curl -H 'Authorization: token x' -H 'X-Auth-Token:x' -H \"Bearer x\" u"}),
            (Words{"sh", "-c", "curl -H 'Authorization: token *** -H 'X-Auth-Token:*** -H \"Bearer *** u"}));
}

TEST(ShownCommand, HidesTextsThatAreNamed) {
  EXPECT_EQ(ShownCommand({"t", "--a", "it's x", "sh -c 't --a 'it'\\''s x''"}, {"'it'\\''s x'", "it's x", ""}),
            (Words{"t", "--a", "***", "sh -c 't --a ***'"}));
}

TEST(ShownCommand, ShowsTheRest) {
  const Words words{"torchrun", "--tokenizer", "gpt2",   "--max-tokens=5", "--key", "a", "PWD=/a", "--token-file",
                    "t",        "train.py",    "lr=0.1", "--env",          "A=1",   "",  " x "};
  EXPECT_EQ(ShownCommand(words), words);
  const Words names{"uvicorn",
                    "app.auth:main",
                    "me/auth:latest",
                    "--no-auth",
                    "a",
                    "--monkey",
                    "b",
                    "http://h?key=1",
                    "a[0]=1",
                    "OLDPWD=/a",
                    "AWS_ACCESS_KEY_ID=a",
                    "s3://b/signature=1",
                    "model.signature=a"};
  EXPECT_EQ(ShownCommand(names), names);
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
