// <qo-place src="WATCH_URL">: a job's place in line, live. See docs/widget.md of qo.
{
const LOST_AFTER_MS = 4000; // a stream that the server ends on purpose is back within 3 s
const QUIET_MS = 10000;
const ENDED = ['succeeded', 'failed', 'cancelled'];
const WORDS = { confirming: 'Waiting for confirmation', succeeded: 'Ready' };
// Parent, tag, name.
const PARTS = `root div card
card p label
card p heading
card p message
card p range
range strong start
range span likely
card div bar
bar div between
bar div tick
card div axis
axis span end
card progress progress
card p count
card a upgrade
root slot text
root p connection
root p announcement`;

const sheet = new CSSStyleSheet();
sheet.replaceSync(`
:host { display: block; max-width: 21rem; color-scheme: light dark;
  --line: var(--qo-line, light-dark(#e4e4df, #2c303a)); --accent: var(--qo-accent, light-dark(#3b5bdb, #8da2ff)); }
:host([hidden]), [hidden] { display: none !important; }
.card { padding: 18px; overflow-wrap: anywhere; border: 1px solid var(--line); border-radius: var(--qo-radius, 12px);
  background: var(--qo-paper, light-dark(#fff, #191c22)); color: var(--qo-ink, light-dark(#1a1c22, #eceef2)); }
.card, .connection { font: 14px/1.4 var(--qo-font, system-ui, sans-serif); font-variant-numeric: tabular-nums; }
p { margin: 0 0 4px; }
.label, .message, .likely, .axis, .count { color: var(--qo-muted, light-dark(#5f6370, #a3a8b4)); font-size: 13px; }
.heading { font-size: 23px; font-weight: 700; line-height: 1.25; }
.succeeded { color: var(--qo-good, light-dark(#2b7a3d, #69db7c)); }
.confirming, .connection { color: var(--qo-warn, light-dark(#8f5f00, #ffc078)); }
.failed { color: var(--qo-bad, light-dark(#c92a2a, #ff8787)); }
.bar { position: relative; height: 8px; border-radius: 4px; background: var(--line); }
.between, .tick { position: absolute; inset-block: 0; border-radius: 4px; background: var(--accent); opacity: .4; }
.tick { width: 2px; inset-block: -2px; opacity: 1; }
.axis { display: flex; justify-content: space-between; }
.axis::before { content: 'now'; }
.range, progress, .upgrade { margin-top: 14px; }
progress { width: 100%; accent-color: var(--accent); }
.upgrade { display: inline-block; padding: 7px 13px; border-radius: 8px; text-decoration: none;
  background: var(--accent); color: var(--qo-on-accent, light-dark(#fff, #111317)); }
.announcement { position: absolute; width: 1px; overflow: hidden; clip-path: inset(50%); }`);

const webAddress = (text, base) => {
  const url = URL.parse(text, base);
  return url && /^https?:$/.test(url.protocol) ? url.href : null;
};

const clock = (time) => new Date(time).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });

const span = (seconds) => seconds < 60 ? `${seconds | 0} s`
  : seconds < 3600 ? `${seconds / 60 | 0} min` : `${(seconds / 360 | 0) / 10} h`;

// One stream for all elements with the same address.
const streams = new Map();
const unsaid = new Map(); // the newest sentence of each stream
let quiet = 0;

const speak = () => {
  quiet = 0;
  for (const [stream, text] of unsaid) {
    unsaid.delete(stream);
    quiet = setTimeout(speak, QUIET_MS);
    return [...stream.places][0].say(text);
  }
};

class Stream {
  places = new Set();
  state = null;

  constructor(url) {
    this.url = url;
    streams.set(url, this);
    this.open();
  }

  open() {
    this.source = new EventSource(this.url);
    for (const name of ['connected', 'reset', 'status']) this.source.addEventListener(name, (event) => this.take(event));
    this.source.onerror = () => this.fail();
  }

  close() {
    streams.delete(this.url);
    unsaid.delete(this);
    clearTimeout(this.timer);
    this.source.close();
  }

  take({ type, data }) {
    let state = JSON.parse(data);
    // A status names, beside state, message and position, only what it changes.
    if (type === 'status' && state.state === this.state?.state) state = { ...this.state, ...state };
    this.state = Object.freeze(state);
    this.timer = this.lostAt = clearTimeout(this.timer);
    if (ENDED.includes(state.state)) this.source.close();
    const shown = JSON.stringify({ ...state, timestamp: 0, resumed: 0 });
    this.tell('', shown !== this.shown);
    this.shown = shown;
  }

  fail() {
    this.lostAt ??= Date.now();
    const lose = () => this.tell(`Connection lost at ${clock(this.lostAt)}. Trying again.`);
    if (this.source.readyState < 2) return this.timer ||= setTimeout(lose, LOST_AFTER_MS);
    // There are too many streams, or the link has expired: EventSource does not say.
    lose();
    fetch(this.url, { headers: { Accept: 'application/json' } }).catch(() => ({})).then(({ status }) => {
      if (status === 404) this.tell('This link no longer works.');
      else this.timer = setTimeout(() => this.places.size && this.open(), QUIET_MS * (1 + Math.random()));
    });
  }

  tell(trouble, changed) {
    this.trouble = trouble;
    for (const place of this.places) place.update(changed);
    const [first] = this.places;
    // The range is no reason to speak: it changes every few seconds.
    const reason = trouble || this.state.status + this.state.position;
    if (!first || reason === this.reason) return;
    this.reason = reason;
    unsaid.set(this, first.sentence());
    if (!quiet) speak();
  }
}

customElements.get('qo-place') ?? customElements.define('qo-place', class extends HTMLElement {
  static observedAttributes = ['src', 'label'];
  #stream;
  #parts;

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    const parts = this.#parts = { root };
    for (const line of PARTS.split('\n')) {
      const [parent, tag, name] = line.split(' ');
      const part = parts[name] = document.createElement(tag);
      part.className = part.part = name;
      parts[parent].append(part);
    }
    parts.axis.ariaHidden = true;
    parts.progress.ariaLabel = 'Progress';
    parts.announcement.ariaLive = 'polite';
    Object.assign(parts.upgrade, { rel: 'noopener', target: '_blank', textContent: 'Upgrade to jump ahead' });
    this.#draw();
  }

  /** The `detail` of the events; null before the first. */
  get state() { return this.#stream?.state ?? null; }

  connectedCallback() { this.#watch(); }
  disconnectedCallback() { this.#watch(); }
  attributeChangedCallback() { this.#watch(); }

  #watch() {
    const src = this.getAttribute('src'), old = this.#stream;
    const url = this.isConnected && src ? webAddress(src, this.baseURI) : null;
    if (url === old?.url) return this.#draw();
    this.#stream = url && (streams.get(url) ?? new Stream(url));
    this.#stream?.places.add(this);
    old?.places.delete(this);
    // Later: a page may take the element out and put it back at once.
    queueMicrotask(() => old?.places.size || old?.close());
    this.update(this.state);
  }

  update(changed) {
    this.#draw();
    const detail = this.state;
    const send = (name) => this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
    if (changed) send('qo-change');
    if (changed && ENDED.includes(detail.state)) send('qo-end');
  }

  say(text) { this.#parts.announcement.textContent = text; }

  sentence() {
    const { label, heading, message, start, connection } = this.#parts, position = this.state?.position;
    return connection.textContent || [label.textContent,
      position ? `Position #${position} in queue` : heading.textContent, (position ? start : message).textContent,
    ].filter(Boolean).join('. ');
  }

  #show(name, text) {
    const part = this.#parts[name];
    part.hidden = !text;
    part.textContent = text || '';
  }

  #draw() {
    const parts = this.#parts, state = this.state;
    parts.text.hidden = state;
    parts.card.hidden = !state;
    this.#show('connection', this.#stream?.trouble);
    this.#show('label', this.getAttribute('label'));
    if (!state) return;
    const { state: name, stage, position, message } = state;
    parts.card.part = `card ${name}`;
    parts.heading.className = `heading ${name}`;
    this.#show('heading', position ? `You are #${position} in queue`
      : (WORDS[name] ?? name[0].toUpperCase() + name.slice(1)) + (name === 'running' && stage ? `: ${stage}` : ''));
    this.#show('message', name !== 'succeeded' && message?.replace(/^You are #\d+ in queue\. /, ''));

    const { estimate_seconds, lower_bound, upper_bound, message: words, basis } = position && state.estimate || {};
    const runAt = name === 'scheduled' && state.run_at, hasRange = upper_bound != null && words !== 'now';
    parts.range.hidden = !words && !runAt;
    parts.bar.hidden = parts.axis.hidden = !hasRange;
    // "4 minutes-9 minutes (first guess)" becomes "4–9 minutes".
    this.#show('start', runAt ? `Starts at ${clock(runAt)}` : words === 'now' ? 'Starts now'
      : words && `Start${hasRange ? 's in' : ''} ${words.replace(/ (\w+)-(\d+ \1)/, '–$2').replace(' (first guess)', '')}`);
    this.#show('likely', hasRange && ` · ${basis === 'measured' ? 'likely' : 'first guess'} ${span(estimate_seconds)}`);
    if (hasRange) {
      const at = (seconds) => clock(Date.now() + seconds * 1000);
      parts.range.title = `Between ${at(lower_bound)} and ${at(upper_bound)}`;
      const share = (seconds) => `${75 * seconds / upper_bound}%`;
      parts.between.style.insetInlineStart = share(lower_bound);
      parts.between.style.width = share(upper_bound - lower_bound);
      parts.tick.style.insetInlineStart = share(estimate_seconds);
      this.#show('end', span(upper_bound / .75));
    }

    const { done, total, text } = name === 'running' && state.progress || {};
    parts.progress.hidden = !total;
    if (total) Object.assign(parts.progress, { max: total, value: done });
    this.#show('count', text ?? (total ? `${done} of ${total}` : done));

    const url = position && webAddress(state.upgrade_url);
    parts.upgrade.hidden = !url;
    parts.upgrade.href = url || '';
  }
});
}
