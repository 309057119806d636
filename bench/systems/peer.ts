/**
 * Peers are installed into `bench/node_modules` when a bench first needs them, so the rest of the
 * repository must compile without their types: each adapter names the few that it uses.
 */
export async function peer<Library>(name: string): Promise<Library> {
  return (await import(name)) as Library;
}
