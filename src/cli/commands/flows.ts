import type { Command } from "commander";
import { withJson, withTarget } from "../flags.ts";
import type { FlowsFlags } from "./flows-show.ts";

export function flowsCommand(program: Command): void {
  withJson(
    withTarget(
      program
        .command("flows [name]")
        .description("draw flows with their open runs, and explain stuck runs"),
    ),
  )
    .addHelpText(
      "after",
      `
A flow is drawn where a config has it in \`use\`. Otherwise its open runs are listed by transition.`,
    )
    .action(async (name: string | undefined, flags: FlowsFlags) => {
      const { showFlows } = await import("./flows-show.ts");
      await showFlows(name, flags);
    });
}
