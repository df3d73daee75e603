package canal

// What the servers' own conversions to utf8mb4 give, asked of MySQL 9.7 and
// MariaDB 10.11 code by code; TestCharsetsAgreeWithTheServerForEveryCode keeps
// this file honest.

// singleByte holds, for each single-byte charset, its 256 characters; '?' where
// the charset has none.
var singleByte = map[string]string{
	"armscii8": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u2741\u00a7\u0589)(\u00bb\u00ab\u2014.\u055d,-\u055f\u2026\u055c\u055b\u055e\u0531\u0561\u0532\u0562\u0533\u0563\u0534\u0564\u0535\u0565\u0536\u0566\u0537\u0567" +
		"\u0538\u0568\u0539\u0569\u053a\u056a\u053b\u056b\u053c\u056c\u053d\u056d\u053e\u056e\u053f\u056f\u0540\u0570\u0541\u0571\u0542\u0572\u0543\u0573\u0544\u0574\u0545\u0575\u0546\u0576\u0547\u0577" +
		"\u0548\u0578\u0549\u0579\u054a\u057a\u054b\u057b\u054c\u057c\u054d\u057d\u054e\u057e\u054f\u057f\u0550\u0580\u0551\u0581\u0552\u0582\u0553\u0583\u0554\u0584\u0555\u0585\u0556\u0586\u2019'",
	"cp1250": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u20ac?\u201a?\u201e\u2026\u2020\u2021?\u2030\u0160\u2039\u015a\u0164\u017d\u0179?\u2018\u2019\u201c\u201d\u2022\u2013\u2014?\u2122\u0161\u203a\u015b\u0165\u017e\u017a" +
		"\u00a0\u02c7\u02d8\u0141\u00a4\u0104\u00a6\u00a7\u00a8\u00a9\u015e\u00ab\u00ac\u00ad\u00ae\u017b\u00b0\u00b1\u02db\u0142\u00b4\u00b5\u00b6\u00b7\u00b8\u0105\u015f\u00bb\u013d\u02dd\u013e\u017c" +
		"\u0154\u00c1\u00c2\u0102\u00c4\u0139\u0106\u00c7\u010c\u00c9\u0118\u00cb\u011a\u00cd\u00ce\u010e\u0110\u0143\u0147\u00d3\u00d4\u0150\u00d6\u00d7\u0158\u016e\u00da\u0170\u00dc\u00dd\u0162\u00df" +
		"\u0155\u00e1\u00e2\u0103\u00e4\u013a\u0107\u00e7\u010d\u00e9\u0119\u00eb\u011b\u00ed\u00ee\u010f\u0111\u0144\u0148\u00f3\u00f4\u0151\u00f6\u00f7\u0159\u016f\u00fa\u0171\u00fc\u00fd\u0163\u02d9",
	"cp1251": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0402\u0403\u201a\u0453\u201e\u2026\u2020\u2021\u20ac\u2030\u0409\u2039\u040a\u040c\u040b\u040f\u0452\u2018\u2019\u201c\u201d\u2022\u2013\u2014?\u2122\u0459\u203a\u045a\u045c\u045b\u045f" +
		"\u00a0\u040e\u045e\u0408\u00a4\u0490\u00a6\u00a7\u0401\u00a9\u0404\u00ab\u00ac\u00ad\u00ae\u0407\u00b0\u00b1\u0406\u0456\u0491\u00b5\u00b6\u00b7\u0451\u2116\u0454\u00bb\u0458\u0405\u0455\u0457" +
		"\u0410\u0411\u0412\u0413\u0414\u0415\u0416\u0417\u0418\u0419\u041a\u041b\u041c\u041d\u041e\u041f\u0420\u0421\u0422\u0423\u0424\u0425\u0426\u0427\u0428\u0429\u042a\u042b\u042c\u042d\u042e\u042f" +
		"\u0430\u0431\u0432\u0433\u0434\u0435\u0436\u0437\u0438\u0439\u043a\u043b\u043c\u043d\u043e\u043f\u0440\u0441\u0442\u0443\u0444\u0445\u0446\u0447\u0448\u0449\u044a\u044b\u044c\u044d\u044e\u044f",
	"cp1256": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u20ac\u067e\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030?\u2039\u0152\u0686\u0698?\u06af\u2018\u2019\u201c\u201d\u2022\u2013\u2014?\u2122?\u203a\u0153\u200c\u200d?" +
		"\u00a0\u060c\u00a2\u00a3\u00a4\u00a5\u00a6\u00a7\u00a8\u00a9?\u00ab\u00ac\u00ad\u00ae\u00af\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b6\u00b7\u00b8\u00b9\u061b\u00bb\u00bc\u00bd\u00be\u061f" +
		"?\u0621\u0622\u0623\u0624\u0625\u0626\u0627\u0628\u0629\u062a\u062b\u062c\u062d\u062e\u062f\u0630\u0631\u0632\u0633\u0634\u0635\u0636\u00d7\u0637\u0638\u0639\u063a\u0640\u0641\u0642\u0643" +
		"\u00e0\u0644\u00e2\u0645\u0646\u0647\u0648\u00e7\u00e8\u00e9\u00ea\u00eb\u0649\u064a\u00ee\u00ef\u064b\u064c\u064d\u064e\u00f4\u064f\u0650\u00f7\u0651\u00f9\u0652\u00fb\u00fc\u200e\u200f?",
	"cp1257": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u20ac?\u201a?\u201e\u2026\u2020\u2021?\u2030?\u2039?\u00a8\u02c7\u00b8?\u2018\u2019\u201c\u201d\u2022\u2013\u2014?\u2122?\u203a?\u00af\u02db?" +
		"\u00a0?\u00a2\u00a3\u00a4?\u00a6\u00a7\u00d8\u00a9\u0156\u00ab\u00ac\u00ad\u00ae\u00c6\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b6\u00b7\u00f8\u00b9\u0157\u00bb\u00bc\u00bd\u00be\u00e6" +
		"\u0104\u012e\u0100\u0106\u00c4\u00c5\u0118\u0112\u010c\u00c9\u0179\u0116\u0122\u0136\u012a\u013b\u0160\u0143\u0145\u00d3\u014c\u00d5\u00d6\u00d7\u0172\u0141\u015a\u016a\u00dc\u017b\u017d\u00df" +
		"\u0105\u012f\u0101\u0107\u00e4\u00e5\u0119\u0113\u010d\u00e9\u017a\u0117\u0123\u0137\u012b\u013c\u0161\u0144\u0146\u00f3\u014d\u00f5\u00f6\u00f7\u0173\u0142\u015b\u016b\u00fc\u017c\u017e\u02d9",
	"cp850": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u00c7\u00fc\u00e9\u00e2\u00e4\u00e0\u00e5\u00e7\u00ea\u00eb\u00e8\u00ef\u00ee\u00ec\u00c4\u00c5\u00c9\u00e6\u00c6\u00f4\u00f6\u00f2\u00fb\u00f9\u00ff\u00d6\u00dc\u00f8\u00a3\u00d8\u00d7\u0192" +
		"\u00e1\u00ed\u00f3\u00fa\u00f1\u00d1\u00aa\u00ba\u00bf\u00ae\u00ac\u00bd\u00bc\u00a1\u00ab\u00bb\u2591\u2592\u2593\u2502\u2524\u00c1\u00c2\u00c0\u00a9\u2563\u2551\u2557\u255d\u00a2\u00a5\u2510" +
		"\u2514\u2534\u252c\u251c\u2500\u253c\u00e3\u00c3\u255a\u2554\u2569\u2566\u2560\u2550\u256c\u00a4\u00f0\u00d0\u00ca\u00cb\u00c8\u0131\u00cd\u00ce\u00cf\u2518\u250c\u2588\u2584\u00a6\u00cc\u2580" +
		"\u00d3\u00df\u00d4\u00d2\u00f5\u00d5\u00b5\u00fe\u00de\u00da\u00db\u00d9\u00fd\u00dd\u00af\u00b4\u00ad\u00b1\u2017\u00be\u00b6\u00a7\u00f7\u00b8\u00b0\u00a8\u00b7\u00b9\u00b3\u00b2\u25a0\u00a0",
	"cp852": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u00c7\u00fc\u00e9\u00e2\u00e4\u016f\u0107\u00e7\u0142\u00eb\u0150\u0151\u00ee\u0179\u00c4\u0106\u00c9\u0139\u013a\u00f4\u00f6\u013d\u013e\u015a\u015b\u00d6\u00dc\u0164\u0165\u0141\u00d7\u010d" +
		"\u00e1\u00ed\u00f3\u00fa\u0104\u0105\u017d\u017e\u0118\u0119\u00ac\u017a\u010c\u015f\u00ab\u00bb\u2591\u2592\u2593\u2502\u2524\u00c1\u00c2\u011a\u015e\u2563\u2551\u2557\u255d\u017b\u017c\u2510" +
		"\u2514\u2534\u252c\u251c\u2500\u253c\u0102\u0103\u255a\u2554\u2569\u2566\u2560\u2550\u256c\u00a4\u0111\u0110\u010e\u00cb\u010f\u0147\u00cd\u00ce\u011b\u2518\u250c\u2588\u2584\u0162\u016e\u2580" +
		"\u00d3\u00df\u00d4\u0143\u0144\u0148\u0160\u0161\u0154\u00da\u0155\u0170\u00fd\u00dd\u0163\u00b4\u00ad\u02dd\u02db\u02c7\u02d8\u00a7\u00f7\u00b8\u00b0\u00a8\u02d9\u0171\u0158\u0159\u25a0\u00a0",
	"cp866": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0410\u0411\u0412\u0413\u0414\u0415\u0416\u0417\u0418\u0419\u041a\u041b\u041c\u041d\u041e\u041f\u0420\u0421\u0422\u0423\u0424\u0425\u0426\u0427\u0428\u0429\u042a\u042b\u042c\u042d\u042e\u042f" +
		"\u0430\u0431\u0432\u0433\u0434\u0435\u0436\u0437\u0438\u0439\u043a\u043b\u043c\u043d\u043e\u043f\u2591\u2592\u2593\u2502\u2524\u2561\u2562\u2556\u2555\u2563\u2551\u2557\u255d\u255c\u255b\u2510" +
		"\u2514\u2534\u252c\u251c\u2500\u253c\u255e\u255f\u255a\u2554\u2569\u2566\u2560\u2550\u256c\u2567\u2568\u2564\u2565\u2559\u2558\u2552\u2553\u256b\u256a\u2518\u250c\u2588\u2584\u258c\u2590\u2580" +
		"\u0440\u0441\u0442\u0443\u0444\u0445\u0446\u0447\u0448\u0449\u044a\u044b\u044c\u044d\u044e\u044f\u0401\u0451\u0404\u0454\u0407\u0457\u040e\u045e\u00b0\u2219\u00b7\u221a\u207f\u00b2\u25a0\u00a0",
	"dec8": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u00a1\u00a2\u00a3?\u00a5?\u00a7\u00a4\u00a9\u00aa\u00ab????\u00b0\u00b1\u00b2\u00b3?\u00b5\u00b6\u00b7?\u00b9\u00ba\u00bb\u00bc\u00bd?\u00bf" +
		"\u00c0\u00c1\u00c2\u00c3\u00c4\u00c5\u00c6\u00c7\u00c8\u00c9\u00ca\u00cb\u00cc\u00cd\u00ce\u00cf?\u00d1\u00d2\u00d3\u00d4\u00d5\u00d6\u0152\u00d8\u00d9\u00da\u00db\u00dc\u0178?\u00df" +
		"\u00e0\u00e1\u00e2\u00e3\u00e4\u00e5\u00e6\u00e7\u00e8\u00e9\u00ea\u00eb\u00ec\u00ed\u00ee\u00ef?\u00f1\u00f2\u00f3\u00f4\u00f5\u00f6\u0153\u00f8\u00f9\u00fa\u00fb\u00fc\u00ff??",
	"geostd8": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u20ac?\u201a?\u201e\u2026\u2020\u2021?\u2030?\u2039?????\u2018\u2019\u201c\u201d\u2022\u2013\u2014???\u203a????" +
		"\u00a0\u00a1\u00a2\u00a3\u00a4\u00a5\u00a6\u00a7\u00a8\u00a9\u00aa\u00ab\u00ac\u00ad\u00ae\u00af\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b6\u00b7\u00b8\u00b9\u00ba\u00bb\u00bc\u00bd\u00be\u00bf" +
		"\u10d0\u10d1\u10d2\u10d3\u10d4\u10d5\u10d6\u10f1\u10d7\u10d8\u10d9\u10da\u10db\u10dc\u10f2\u10dd\u10de\u10df\u10e0\u10e1\u10e2\u10f3\u10e3\u10e4\u10e5\u10e6\u10e7\u10e8\u10e9\u10ea\u10eb\u10ec" +
		"\u10ed\u10ee\u10f4\u10ef\u10f0\u10f5???????????????????????\u2116??",
	"greek": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u02bd\u02bc\u00a3??\u00a6\u00a7\u00a8\u00a9?\u00ab\u00ac\u00ad?\u2015\u00b0\u00b1\u00b2\u00b3\u0384\u0385\u0386\u00b7\u0388\u0389\u038a\u00bb\u038c\u00bd\u038e\u038f" +
		"\u0390\u0391\u0392\u0393\u0394\u0395\u0396\u0397\u0398\u0399\u039a\u039b\u039c\u039d\u039e\u039f\u03a0\u03a1?\u03a3\u03a4\u03a5\u03a6\u03a7\u03a8\u03a9\u03aa\u03ab\u03ac\u03ad\u03ae\u03af" +
		"\u03b0\u03b1\u03b2\u03b3\u03b4\u03b5\u03b6\u03b7\u03b8\u03b9\u03ba\u03bb\u03bc\u03bd\u03be\u03bf\u03c0\u03c1\u03c2\u03c3\u03c4\u03c5\u03c6\u03c7\u03c8\u03c9\u03ca\u03cb\u03cc\u03cd\u03ce?",
	"hebrew": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0?\u00a2\u00a3\u00a4\u00a5\u00a6\u00a7\u00a8\u00a9\u00d7\u00ab\u00ac\u00ad\u00ae\u203e\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b6\u00b7\u00b8\u00b9\u00f7\u00bb\u00bc\u00bd\u00be?" +
		"???????????????????????????????\u2017" +
		"\u05d0\u05d1\u05d2\u05d3\u05d4\u05d5\u05d6\u05d7\u05d8\u05d9\u05da\u05db\u05dc\u05dd\u05de\u05df\u05e0\u05e1\u05e2\u05e3\u05e4\u05e5\u05e6\u05e7\u05e8\u05e9\u05ea??\u200e\u200f?",
	"hp8": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u00c0\u00c2\u00c8\u00ca\u00cb\u00ce\u00cf\u00b4\u02cb\u02c6\u00a8\u02dc\u00d9\u00db\u20a4\u00af\u00dd\u00fd\u00b0\u00c7\u00e7\u00d1\u00f1\u00a1\u00bf\u00a4\u00a3\u00a5\u00a7\u0192\u00a2" +
		"\u00e2\u00ea\u00f4\u00fb\u00e1\u00e9\u00f3\u00fa\u00e0\u00e8\u00f2\u00f9\u00e4\u00eb\u00f6\u00fc\u00c5\u00ee\u00d8\u00c6\u00e5\u00ed\u00f8\u00e6\u00c4\u00ec\u00d6\u00dc\u00c9\u00ef\u00df\u00d4" +
		"\u00c1\u00c3\u00e3\u00d0\u00f0\u00cd\u00cc\u00d3\u00d2\u00d5\u00f5\u0160\u0161\u00da\u0178\u00ff\u00de\u00fe\u00b7\u00b5\u00b6\u00be\u2014\u00bc\u00bd\u00aa\u00ba\u00ab\u25a0\u00bb\u00b1?",
	"keybcs2": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u010c\u00fc\u00e9\u010f\u00e4\u010e\u0164\u010d\u011b\u011a\u0139\u00cd\u013e\u013a\u00c4\u00c1\u00c9\u017e\u017d\u00f4\u00f6\u00d3\u016f\u00da\u00fd\u00d6\u00dc\u0160\u013d\u00dd\u0158\u0165" +
		"\u00e1\u00ed\u00f3\u00fa\u0148\u0147\u016e\u00d4\u0161\u0159\u0155\u0154\u00bc\u00a1\u00ab\u00bb\u2591\u2592\u2593\u2502\u2524\u2561\u2562\u2556\u2555\u2563\u2551\u2557\u255d\u255c\u255b\u2510" +
		"\u2514\u2534\u252c\u251c\u2500\u253c\u255e\u255f\u255a\u2554\u2569\u2566\u2560\u2550\u256c\u2567\u2568\u2564\u2565\u2559\u2558\u2552\u2553\u256b\u256a\u2518\u250c\u2588\u2584\u258c\u2590\u2580" +
		"\u03b1\u00df\u0393\u03c0\u03a3\u03c3\u00b5\u03c4\u03a6\u0398\u03a9\u03b4\u221e\u03c6\u03b5\u2229\u2261\u00b1\u2265\u2264\u2320\u2321\u00f7\u2248\u00b0\u2219\u00b7\u221a\u207f\u00b2\u25a0\u00a0",
	"koi8r": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u2500\u2502\u250c\u2510\u2514\u2518\u251c\u2524\u252c\u2534\u253c\u2580\u2584\u2588\u258c\u2590\u2591\u2592\u2593\u2320\u25a0\u2219\u221a\u2248\u2264\u2265\u00a0\u2321\u00b0\u00b2\u00b7\u00f7" +
		"\u2550\u2551\u2552\u0451\u2553\u2554\u2555\u2556\u2557\u2558\u2559\u255a\u255b\u255c\u255d\u255e\u255f\u2560\u2561\u0401\u2562\u2563\u2564\u2565\u2566\u2567\u2568\u2569\u256a\u256b\u256c\u00a9" +
		"\u044e\u0430\u0431\u0446\u0434\u0435\u0444\u0433\u0445\u0438\u0439\u043a\u043b\u043c\u043d\u043e\u043f\u044f\u0440\u0441\u0442\u0443\u0436\u0432\u044c\u044b\u0437\u0448\u044d\u0449\u0447\u044a" +
		"\u042e\u0410\u0411\u0426\u0414\u0415\u0424\u0413\u0425\u0418\u0419\u041a\u041b\u041c\u041d\u041e\u041f\u042f\u0420\u0421\u0422\u0423\u0416\u0412\u042c\u042b\u0417\u0428\u042d\u0429\u0427\u042a",
	"koi8u": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u2500\u2502\u250c\u2510\u2514\u2518\u251c\u2524\u252c\u2534\u253c\u2580\u2584\u2588\u258c\u2590\u2591\u2592\u2593\u2320\u25a0\u2022\u221a\u2248\u2264\u2265\u00a0\u2321\u00b0\u00b2\u00b7\u00f7" +
		"\u2550\u2551\u2552\u0451\u0454\u2554\u0456\u0457\u2557\u2558\u2559\u255a\u255b\u0491\u255d\u255e\u255f\u2560\u2561\u0401\u0404\u2563\u0406\u0407\u2566\u2567\u2568\u2569\u256a\u0490\u256c\u00a9" +
		"\u044e\u0430\u0431\u0446\u0434\u0435\u0444\u0433\u0445\u0438\u0439\u043a\u043b\u043c\u043d\u043e\u043f\u044f\u0440\u0441\u0442\u0443\u0436\u0432\u044c\u044b\u0437\u0448\u044d\u0449\u0447\u044a" +
		"\u042e\u0410\u0411\u0426\u0414\u0415\u0424\u0413\u0425\u0418\u0419\u041a\u041b\u041c\u041d\u041e\u041f\u042f\u0420\u0421\u0422\u0423\u0416\u0412\u042c\u042b\u0417\u0428\u042d\u0429\u0427\u042a",
	"latin1": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u20ac\u0081\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u008d\u017d\u008f\u0090\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u009d\u017e\u0178" +
		"\u00a0\u00a1\u00a2\u00a3\u00a4\u00a5\u00a6\u00a7\u00a8\u00a9\u00aa\u00ab\u00ac\u00ad\u00ae\u00af\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b6\u00b7\u00b8\u00b9\u00ba\u00bb\u00bc\u00bd\u00be\u00bf" +
		"\u00c0\u00c1\u00c2\u00c3\u00c4\u00c5\u00c6\u00c7\u00c8\u00c9\u00ca\u00cb\u00cc\u00cd\u00ce\u00cf\u00d0\u00d1\u00d2\u00d3\u00d4\u00d5\u00d6\u00d7\u00d8\u00d9\u00da\u00db\u00dc\u00dd\u00de\u00df" +
		"\u00e0\u00e1\u00e2\u00e3\u00e4\u00e5\u00e6\u00e7\u00e8\u00e9\u00ea\u00eb\u00ec\u00ed\u00ee\u00ef\u00f0\u00f1\u00f2\u00f3\u00f4\u00f5\u00f6\u00f7\u00f8\u00f9\u00fa\u00fb\u00fc\u00fd\u00fe\u00ff",
	"latin2": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u0104\u02d8\u0141\u00a4\u013d\u015a\u00a7\u00a8\u0160\u015e\u0164\u0179\u00ad\u017d\u017b\u00b0\u0105\u02db\u0142\u00b4\u013e\u015b\u02c7\u00b8\u0161\u015f\u0165\u017a\u02dd\u017e\u017c" +
		"\u0154\u00c1\u00c2\u0102\u00c4\u0139\u0106\u00c7\u010c\u00c9\u0118\u00cb\u011a\u00cd\u00ce\u010e\u0110\u0143\u0147\u00d3\u00d4\u0150\u00d6\u00d7\u0158\u016e\u00da\u0170\u00dc\u00dd\u0162\u00df" +
		"\u0155\u00e1\u00e2\u0103\u00e4\u013a\u0107\u00e7\u010d\u00e9\u0119\u00eb\u011b\u00ed\u00ee\u010f\u0111\u0144\u0148\u00f3\u00f4\u0151\u00f6\u00f7\u0159\u016f\u00fa\u0171\u00fc\u00fd\u0163\u02d9",
	"latin5": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u00a1\u00a2\u00a3\u00a4\u00a5\u00a6\u00a7\u00a8\u00a9\u00aa\u00ab\u00ac\u00ad\u00ae\u00af\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b6\u00b7\u00b8\u00b9\u00ba\u00bb\u00bc\u00bd\u00be\u00bf" +
		"\u00c0\u00c1\u00c2\u00c3\u00c4\u00c5\u00c6\u00c7\u00c8\u00c9\u00ca\u00cb\u00cc\u00cd\u00ce\u00cf\u011e\u00d1\u00d2\u00d3\u00d4\u00d5\u00d6\u00d7\u00d8\u00d9\u00da\u00db\u00dc\u0130\u015e\u00df" +
		"\u00e0\u00e1\u00e2\u00e3\u00e4\u00e5\u00e6\u00e7\u00e8\u00e9\u00ea\u00eb\u00ec\u00ed\u00ee\u00ef\u011f\u00f1\u00f2\u00f3\u00f4\u00f5\u00f6\u00f7\u00f8\u00f9\u00fa\u00fb\u00fc\u0131\u015f\u00ff",
	"latin7": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\u00a0\u201d\u00a2\u00a3\u00a4\u201e\u00a6\u00a7\u00d8\u00a9\u0156\u00ab\u00ac\u00ad\u00ae\u00c6\u00b0\u00b1\u00b2\u00b3\u201c\u00b5\u00b6\u00b7\u00f8\u00b9\u0157\u00bb\u00bc\u00bd\u00be\u00e6" +
		"\u0104\u012e\u0100\u0106\u00c4\u00c5\u0118\u0112\u010c\u00c9\u0179\u0116\u0122\u0136\u012a\u013b\u0160\u0143\u0145\u00d3\u014c\u00d5\u00d6\u00d7\u0172\u0141\u015a\u016a\u00dc\u017b\u017d\u00df" +
		"\u0105\u012f\u0101\u0107\u00e4\u00e5\u0119\u0113\u010d\u00e9\u017a\u0117\u0123\u0137\u012b\u013c\u0161\u0144\u0146\u00f3\u014d\u00f5\u00f6\u00f7\u0173\u0142\u015b\u016b\u00fc\u017c\u017e\u2019",
	"macce": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u00c4\u0100\u0101\u00c9\u0104\u00d6\u00dc\u00e1\u0105\u010c\u00e4\u010d\u0106\u0107\u00e9\u0179\u017a\u010e\u00ed\u010f\u0112\u0113\u0116\u00f3\u0117\u00f4\u00f6\u00f5\u00fa\u011a\u011b\u00fc" +
		"\u2020\u00b0\u0118\u00a3\u00a7\u2022\u00b6\u00df\u00ae\u00a9\u2122\u0119\u00a8\u2260\u0123\u012e\u012f\u012a\u2264\u2265\u012b\u0136\u2202\u2211\u0142\u013b\u013c\u013d\u013e\u0139\u013a\u0145" +
		"\u0146\u0143\u00ac\u221a\u0144\u0147\u2206\u00ab\u00bb\u2026\u00a0\u0148\u0150\u00d5\u0151\u014c\u2013\u2014\u201c\u201d\u2018\u2019\u00f7\u25ca\u014d\u0154\u0155\u0158\u2039\u203a\u0159\u0156" +
		"\u0157\u0160\u201a\u201e\u0161\u015a\u015b\u00c1\u0164\u0165\u00cd\u017d\u017e\u016a\u00d3\u00d4\u016b\u016e\u00da\u016f\u0170\u0171\u0172\u0173\u00dd\u00fd\u0137\u017b\u0141\u017c\u0122\u02c7",
	"macroman": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u00c4\u00c5\u00c7\u00c9\u00d1\u00d6\u00dc\u00e1\u00e0\u00e2\u00e4\u00e3\u00e5\u00e7\u00e9\u00e8\u00ea\u00eb\u00ed\u00ec\u00ee\u00ef\u00f1\u00f3\u00f2\u00f4\u00f6\u00f5\u00fa\u00f9\u00fb\u00fc" +
		"\u2020\u00b0\u00a2\u00a3\u00a7\u2022\u00b6\u00df\u00ae\u00a9\u2122\u00b4\u00a8\u2260\u00c6\u00d8\u221e\u00b1\u2264\u2265\u00a5\u00b5\u2202\u2211\u220f\u03c0\u222b\u00aa\u00ba\u03a9\u00e6\u00f8" +
		"\u00bf\u00a1\u00ac\u221a\u0192\u2248\u2206\u00ab\u00bb\u2026\u00a0\u00c0\u00c3\u00d5\u0152\u0153\u2013\u2014\u201c\u201d\u2018\u2019\u00f7\u25ca\u00ff\u0178\u2044\u20ac\u2039\u203a\ufb01\ufb02" +
		"\u2021\u00b7\u201a\u201e\u2030\u00c2\u00ca\u00c1\u00cb\u00c8\u00cd\u00ce\u00cf\u00cc\u00d3\u00d4\uf8ff\u00d2\u00da\u00db\u00d9\u0131\u02c6\u02dc\u00af\u02d8\u02d9\u02da\u00b8\u02dd\u02db\u02c7",
	"swe7": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"\u00c9ABCDEFGHIJKLMNOPQRSTUVWXYZ\u00c4\u00d6\u00c5\u00dc_" +
		"\u00e9abcdefghijklmnopqrstuvwxyz\u00e4\u00f6\u00e5\u00fc?" +
		"????????????????????????????????" +
		"????????????????????????????????" +
		"????????????????????????????????" +
		"????????????????????????????????",
	"tis620": "" +
		"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f" +
		" !\"#$%&'()*+,-./0123456789:;<=>?" +
		"@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_" +
		"`abcdefghijklmnopqrstuvwxyz{|}~\x7f" +
		"\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087\u0088\u0089\u008a\u008b\u008c\u008d\u008e\u008f\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009a\u009b\u009c\u009d\u009e\u009f" +
		"\ufffd\u0e01\u0e02\u0e03\u0e04\u0e05\u0e06\u0e07\u0e08\u0e09\u0e0a\u0e0b\u0e0c\u0e0d\u0e0e\u0e0f\u0e10\u0e11\u0e12\u0e13\u0e14\u0e15\u0e16\u0e17\u0e18\u0e19\u0e1a\u0e1b\u0e1c\u0e1d\u0e1e\u0e1f" +
		"\u0e20\u0e21\u0e22\u0e23\u0e24\u0e25\u0e26\u0e27\u0e28\u0e29\u0e2a\u0e2b\u0e2c\u0e2d\u0e2e\u0e2f\u0e30\u0e31\u0e32\u0e33\u0e34\u0e35\u0e36\u0e37\u0e38\u0e39\u0e3a\ufffd\ufffd\ufffd\ufffd\u0e3f" +
		"\u0e40\u0e41\u0e42\u0e43\u0e44\u0e45\u0e46\u0e47\u0e48\u0e49\u0e4a\u0e4b\u0e4c\u0e4d\u0e4e\u0e4f\u0e50\u0e51\u0e52\u0e53\u0e54\u0e55\u0e56\u0e57\u0e58\u0e59\u0e5a\u0e5b\ufffd\ufffd\ufffd\ufffd",
}

// multiByteDiffs holds, for each multi-byte charset, the codes that the servers
// map otherwise than x/text does, in runs: n codes from code on become n
// characters from to on, or all become '?' when to is '?'.
var multiByteDiffs = map[string][]codeRun{
	"big5": {
		{0xa145, 0x2022, 1}, {0xa14e, 0xff64, 1}, {0xa15a, 0xfffd, 1}, {0xa1c2, 0x203e, 1}, {0xa1c3, 0xfffd, 1},
		{0xa1c5, 0xfffd, 1}, {0xa1e3, 0x223c, 1}, {0xa1f2, 0x2641, 1}, {0xa1f3, 0x2609, 1}, {0xa1fe, 0xfffd, 1},
		{0xa240, 0xfffd, 1}, {0xa241, 0xff0f, 1}, {0xa242, 0xff3c, 1}, {0xa244, 0xa5, 1}, {0xa246, 0xa2, 2},
		{0xa2cc, 0xfffd, 1}, {0xa2ce, 0xfffd, 1}, {0xa3c0, 0x3f, 34}, {0xc6a1, 0x30fe, 1}, {0xc6a2, 0x309d, 2},
		{0xc6a4, 0x3005, 1}, {0xc6a5, 0x3041, 83}, {0xc6f8, 0x30a1, 7}, {0xc740, 0x30a8, 63}, {0xc7a1, 0x30e7, 16},
		{0xc7b1, 0x414, 2}, {0xc7b3, 0x401, 1}, {0xc7b4, 0x416, 7}, {0xc7bb, 0x423, 19}, {0xc7ce, 0x451, 1},
		{0xc7cf, 0x436, 26}, {0xc7e9, 0x2460, 10}, {0xc7f3, 0x2474, 10}, {0xc7fd, 0x3f, 2}, {0xc840, 0x3f, 63},
		{0xc8a1, 0x3f, 4}, {0xc8cd, 0x3f, 37}, {0xc8f5, 0x3f, 10}, {0xf9dd, 0x3f, 34},
	},
	"cp932": {
		{0x80, 0x3f, 1},
		{0xf040, 0xe000, 63}, {0xf080, 0xe03f, 125}, {0xf140, 0xe0bc, 63}, {0xf180, 0xe0fb, 125}, {0xf240, 0xe178, 63},
		{0xf280, 0xe1b7, 125}, {0xf340, 0xe234, 63}, {0xf380, 0xe273, 125}, {0xf440, 0xe2f0, 63}, {0xf480, 0xe32f, 125},
		{0xf540, 0xe3ac, 63}, {0xf580, 0xe3eb, 125}, {0xf640, 0xe468, 63}, {0xf680, 0xe4a7, 125}, {0xf740, 0xe524, 63},
		{0xf780, 0xe563, 125}, {0xf840, 0xe5e0, 63}, {0xf880, 0xe61f, 125}, {0xf940, 0xe69c, 63}, {0xf980, 0xe6db, 125},
	},
	"eucjpms": {
		{0xf5a1, 0xe000, 94}, {0xf6a1, 0xe05e, 94}, {0xf7a1, 0xe0bc, 94}, {0xf8a1, 0xe11a, 94}, {0xf9a1, 0xe178, 94},
		{0xfaa1, 0xe1d6, 94}, {0xfba1, 0xe234, 94}, {0xfca1, 0xe292, 94}, {0xfda1, 0xe2f0, 94}, {0xfea1, 0xe34e, 94},
		{0x8fa2c3, 0xffe4, 1}, {0x8ff3f3, 0x2170, 10}, {0x8ff3fd, 0x2160, 2}, {0x8ff4a1, 0x2162, 8}, {0x8ff4a9, 0xff07, 1},
		{0x8ff4aa, 0xff02, 1}, {0x8ff4ab, 0x3231, 1}, {0x8ff4ac, 0x2116, 1}, {0x8ff4ad, 0x2121, 1}, {0x8ff4ae, 0x70bb, 1},
		{0x8ff4af, 0x4efc, 1}, {0x8ff4b0, 0x50f4, 1}, {0x8ff4b1, 0x51ec, 1}, {0x8ff4b2, 0x5307, 1}, {0x8ff4b3, 0x5324, 1},
		{0x8ff4b4, 0xfa0e, 1}, {0x8ff4b5, 0x548a, 1}, {0x8ff4b6, 0x5759, 1}, {0x8ff4b7, 0xfa0f, 2}, {0x8ff4b9, 0x589e, 1},
		{0x8ff4ba, 0x5bec, 1}, {0x8ff4bb, 0x5cf5, 1}, {0x8ff4bc, 0x5d53, 1}, {0x8ff4bd, 0xfa11, 1}, {0x8ff4be, 0x5fb7, 1},
		{0x8ff4bf, 0x6085, 1}, {0x8ff4c0, 0x6120, 1}, {0x8ff4c1, 0x654e, 1}, {0x8ff4c2, 0x663b, 1}, {0x8ff4c3, 0x6665, 1},
		{0x8ff4c4, 0xfa12, 1}, {0x8ff4c5, 0xf929, 1}, {0x8ff4c6, 0x6801, 1}, {0x8ff4c7, 0xfa13, 2}, {0x8ff4c9, 0x6a6b, 1},
		{0x8ff4ca, 0x6ae2, 1}, {0x8ff4cb, 0x6df8, 1}, {0x8ff4cc, 0x6df2, 1}, {0x8ff4cd, 0x7028, 1}, {0x8ff4ce, 0xfa15, 2},
		{0x8ff4d0, 0x7501, 1}, {0x8ff4d1, 0x7682, 1}, {0x8ff4d2, 0x769e, 1}, {0x8ff4d3, 0xfa17, 1}, {0x8ff4d4, 0x7930, 1},
		{0x8ff4d5, 0xfa18, 4}, {0x8ff4d9, 0x7ae7, 1}, {0x8ff4da, 0xfa1c, 2}, {0x8ff4dc, 0x7da0, 1}, {0x8ff4dd, 0x7dd6, 1},
		{0x8ff4de, 0xfa1e, 1}, {0x8ff4df, 0x8362, 1}, {0x8ff4e0, 0xfa1f, 1}, {0x8ff4e1, 0x85b0, 1}, {0x8ff4e2, 0xfa20, 2},
		{0x8ff4e4, 0x8807, 1}, {0x8ff4e5, 0xfa22, 1}, {0x8ff4e6, 0x8b7f, 1}, {0x8ff4e7, 0x8cf4, 1}, {0x8ff4e8, 0x8d76, 1},
		{0x8ff4e9, 0xfa23, 3}, {0x8ff4ec, 0x90de, 1}, {0x8ff4ed, 0xfa26, 1}, {0x8ff4ee, 0x9115, 1}, {0x8ff4ef, 0xfa27, 2},
		{0x8ff4f1, 0x9592, 1}, {0x8ff4f2, 0xf9dc, 1}, {0x8ff4f3, 0xfa29, 1}, {0x8ff4f4, 0x973b, 1}, {0x8ff4f5, 0x974d, 1},
		{0x8ff4f6, 0x9751, 1}, {0x8ff4f7, 0xfa2a, 3}, {0x8ff4fa, 0x999e, 1}, {0x8ff4fb, 0x9ad9, 1}, {0x8ff4fc, 0x9b72, 1},
		{0x8ff4fd, 0xfa2d, 1}, {0x8ff4fe, 0x9ed1, 1}, {0x8ff5a1, 0xe3ac, 94}, {0x8ff6a1, 0xe40a, 94}, {0x8ff7a1, 0xe468, 94},
		{0x8ff8a1, 0xe4c6, 94}, {0x8ff9a1, 0xe524, 94}, {0x8ffaa1, 0xe582, 94}, {0x8ffba1, 0xe5e0, 94}, {0x8ffca1, 0xe63e, 94},
		{0x8ffda1, 0xe69c, 94}, {0x8ffea1, 0xe6fa, 94},
	},
	"gb18030": {
		{0xa140, 0xe4c6, 63}, {0xa180, 0xe505, 33}, {0xa240, 0xe526, 63}, {0xa280, 0xe565, 33}, {0xa2ab, 0xe766, 6},
		{0xa2e4, 0xe76d, 1}, {0xa2ef, 0xe76e, 2}, {0xa2fd, 0xe770, 2}, {0xa340, 0xe586, 63}, {0xa380, 0xe5c5, 33},
		{0xa440, 0xe5e6, 63}, {0xa480, 0xe625, 33}, {0xa4f4, 0xe772, 11}, {0xa540, 0xe646, 63}, {0xa580, 0xe685, 33},
		{0xa5f7, 0xe77d, 8}, {0xa640, 0xe6a6, 63}, {0xa680, 0xe6e5, 33}, {0xa6b9, 0xe785, 8}, {0xa6d9, 0xe78d, 7},
		{0xa6ec, 0xe794, 2}, {0xa6f3, 0xe796, 1}, {0xa6f6, 0xe797, 9}, {0xa740, 0xe706, 63}, {0xa780, 0xe745, 33},
		{0xa7c2, 0xe7a0, 15}, {0xa7f2, 0xe7af, 13}, {0xa896, 0xe7bc, 11}, {0xa8bc, 0x1e3f, 1}, {0xa8c1, 0xe7c9, 4},
		{0xa8ea, 0xe7cd, 21}, {0xa958, 0xe7e2, 1}, {0xa95b, 0xe7e3, 1}, {0xa95d, 0xe7e4, 3}, {0xa997, 0xe7f4, 13},
		{0xa9f0, 0xe801, 15}, {0xaaa1, 0xe000, 94}, {0xaba1, 0xe05e, 94}, {0xaca1, 0xe0bc, 94}, {0xada1, 0xe11a, 94},
		{0xaea1, 0xe178, 94}, {0xafa1, 0xe1d6, 94}, {0xd7fa, 0xe810, 5}, {0xf8a1, 0xe234, 94}, {0xf9a1, 0xe292, 94},
		{0xfaa1, 0xe2f0, 94}, {0xfba1, 0xe34e, 94}, {0xfca1, 0xe3ac, 94}, {0xfda1, 0xe40a, 94}, {0xfe51, 0xe816, 3},
		{0xfe59, 0xe81e, 1}, {0xfe61, 0xe826, 1}, {0xfe66, 0xe82b, 2}, {0xfe6c, 0xe831, 2}, {0xfe76, 0xe83b, 1},
		{0xfe7e, 0xe843, 1}, {0xfe90, 0xe854, 2}, {0xfea0, 0xe864, 1}, {0xfea1, 0xe468, 94},
		{0x8431a437, 0xfffd, 1},
	},
	"gb2312": {
		{0xa1a4, 0x30fb, 1}, {0xa1aa, 0x2015, 1}, {0xa2a1, 0x3f, 10}, {0xa2e3, 0x3f, 1}, {0xa6e0, 0x3f, 12},
		{0xa6ee, 0x3f, 5}, {0xa6f4, 0x3f, 2}, {0xa8bb, 0x3f, 1}, {0xa8bd, 0x3f, 4},
	},
	"gbk": {
		{0xa2e3, 0x3f, 1}, {0xa3a0, 0x3f, 1}, {0xa8bf, 0x3f, 1}, {0xa989, 0x3f, 13}, {0xfe50, 0x3f, 1},
		{0xfe54, 0x3f, 5}, {0xfe5a, 0x3f, 7}, {0xfe62, 0x3f, 4}, {0xfe68, 0x3f, 4}, {0xfe6e, 0x3f, 8},
		{0xfe77, 0x3f, 7}, {0xfe80, 0x3f, 16}, {0xfe92, 0x3f, 14},
	},
	"sjis": {
		{0x80, 0x3f, 1},
		{0x815f, 0x5c, 1}, {0x8160, 0x301c, 1}, {0x8161, 0x2016, 1}, {0x817c, 0x2212, 1}, {0x8191, 0xa2, 2},
		{0x81ca, 0xac, 1}, {0x8740, 0x3f, 30}, {0x875f, 0x3f, 23}, {0x877e, 0x3f, 1}, {0x8780, 0x3f, 29},
		{0xed40, 0x3f, 63}, {0xed80, 0x3f, 125}, {0xee40, 0x3f, 63}, {0xee80, 0x3f, 109}, {0xeeef, 0x3f, 14},
		{0xfa40, 0x3f, 63}, {0xfa80, 0x3f, 125}, {0xfb40, 0x3f, 63}, {0xfb80, 0x3f, 125}, {0xfc40, 0x3f, 12},
	},
	"ujis": {
		{0xa1c0, 0x5c, 1}, {0xa1c1, 0x301c, 1}, {0xa1c2, 0x2016, 1}, {0xa1dd, 0x2212, 1}, {0xa1f1, 0xa2, 2},
		{0xa2cc, 0xac, 1}, {0xada1, 0x3f, 30}, {0xadc0, 0x3f, 23}, {0xaddf, 0x3f, 30}, {0xf5a1, 0xe000, 94},
		{0xf6a1, 0xe05e, 94}, {0xf7a1, 0xe0bc, 94}, {0xf8a1, 0xe11a, 94}, {0xf9a1, 0xe178, 94}, {0xfaa1, 0xe1d6, 94},
		{0xfba1, 0xe234, 94}, {0xfca1, 0xe292, 94}, {0xfda1, 0xe2f0, 94}, {0xfea1, 0xe34e, 94}, {0x8fa2b7, 0x7e, 1},
		{0x8ff5a1, 0xe3ac, 94}, {0x8ff6a1, 0xe40a, 94}, {0x8ff7a1, 0xe468, 94}, {0x8ff8a1, 0xe4c6, 94}, {0x8ff9a1, 0xe524, 94},
		{0x8ffaa1, 0xe582, 94}, {0x8ffba1, 0xe5e0, 94}, {0x8ffca1, 0xe63e, 94}, {0x8ffda1, 0xe69c, 94}, {0x8ffea1, 0xe6fa, 94},
	},
}
