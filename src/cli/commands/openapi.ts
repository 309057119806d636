import type { Command } from "commander";
import { version } from "../../runtime/version.ts";
import { print } from "../output.ts";

export function openApiCommand(program: Command): void {
  program
    .command("openapi")
    .description("print what the HTTP server takes and answers, as an OpenAPI 3.1 document")
    .option("--json", "print it on one line")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla openapi > openapi.json
  $ npx openapi-typescript openapi.json -o flotilla-api.ts`,
    )
    .action(async ({ json }: { json?: true }) => {
      // Loaded only here: other commands shouldn't wait for it.
      const { openApi } = await import("../../server/openapi.ts");
      print(JSON.stringify(openApi({ version: version() }), null, json ? undefined : 2));
    });
}
