import type { Command } from "commander";
import { withJson, withStore } from "../flags.ts";
import type { FlowsFlags } from "./flows-show.ts";

export function flowsCommand(program: Command): void {
  withJson(
    withStore(
      program
        .command("flows [name]")
        .description("draw flows, with how many runs stand where, and say which are stuck"),
    ),
  )
    .addHelpText(
      "after",
      `
A machine is drawn where a config has it in \`use\`. Without one, the store tells where runs stand.`,
    )
    .action(async (name: string | undefined, flags: FlowsFlags) => {
      const { showFlows } = await import("./flows-show.ts");
      await showFlows(name, flags);
    });
}
